"""All ranks follow when parameters are frozen, unfrozen, added or replaced while training."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import sampa
from tests.distributed.failing import messages, rank
from tests.distributed.training import Outcome, Run, Session, differences
from tests.marks import rest_is_slow
from tests.ranks import run_ranks

pytestmark = pytest.mark.dist

Change = Callable[[Session], None]
Plan = list[tuple[Run, list[Change]]]
NETWORK = {"shared_memory": False}
BUCKETS = {"shared_memory": False, "bucket_mb": 0.001}
VARIES = {"find_unused_parameters": True}


def net() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16), nn.Linear(16, 10)
    model = nn.Sequential(nn.Flatten(), *layers)
    model[4].requires_grad_(False)
    return model


def all_but_the_last(model: nn.Module) -> list[nn.Parameter]:
    return list(model.parameters())[:-2]


def layers_of(session: Session) -> nn.Sequential:
    assert isinstance(session.model, nn.Sequential)
    return session.model


def unfreeze(session: Session) -> None:
    layers_of(session)[4].requires_grad_(True)


def freeze(session: Session) -> None:
    layers_of(session)[1].requires_grad_(False)


def add_the_last(session: Session) -> None:
    last = list(session.model.parameters())[-2:]
    session.optimizer.add_param_group({"params": last, "lr": 0.05})


def grow(session: Session) -> None:
    torch.manual_seed(rank())  # rank 0's layer is copied to all
    added = nn.Linear(10, 10)
    layers_of(session).append(added)
    session.optimizer.add_param_group({"params": list(added.parameters())})


def replace_a_layer(session: Session) -> None:
    torch.manual_seed(3)
    layers = layers_of(session)
    for p in layers[5].parameters():
        session.optimizer.state.pop(p)
    layers[5] = nn.Linear(16, 10)
    session.optimizer.param_groups[0]["params"] = list(layers.parameters())


RUN = Run(net=net)
PART = Run(net=net, groups=all_but_the_last)
CHANGES: Plan = [
    (RUN, [unfreeze, freeze]),
    (PART, [add_the_last, unfreeze]),
    (RUN, [grow, freeze]),
    (RUN, [replace_a_layer, unfreeze]),
]


def train_through(
    changes: list[tuple[Run, list[Change]]], options: dict[str, Any]
) -> list[Outcome]:
    """Each run with its changes, one after the other."""
    outcomes: list[Outcome] = []
    for run, steps in changes:
        session = Session(replace(run, **options))
        session.advance(3)
        for change in steps:
            change(session)
            session.advance(3)
        outcomes.append(session.outcome())
    return outcomes


@pytest.mark.parametrize(
    "distribute",
    rest_is_slow(
        [{}, NETWORK, BUCKETS, VARIES, {**NETWORK, **VARIES}], {}, BUCKETS, {**NETWORK, **VARIES}
    ),
    ids=str,
)
def test_parameters_trained_later_match_serial_bitwise(distribute: dict[str, Any]) -> None:
    options = {"distribute": distribute}
    (expected,) = run_ranks(1, train_through, CHANGES, options)
    for outcomes in run_ranks(2, train_through, CHANGES, options):
        assert differences(outcomes, expected) == []


def test_an_unfrozen_layer_moves() -> None:
    """Else the test above would show nothing."""
    before = net().state_dict()["4.weight"]
    for outcomes in run_ranks(2, train_through, CHANGES[:1], {"distribute": NETWORK}):
        assert not torch.equal(outcomes[0].model["4.weight"], before)


@pytest.mark.slow
def test_four_ranks_follow_and_agree() -> None:
    """Data ranks average what is trained now; BatchNorm sees shards, so one process differs."""
    for options in ({}, {"distribute": {"branches": 1}, "make": sampa.SAM}):
        ranks = run_ranks(4, train_through, CHANGES, options)
        first, *others = [[o.model for o in outcomes] for outcomes in ranks]
        assert [differences(o, first) for o in others] == [[]] * 3
        assert not torch.equal(first[0]["4.weight"], net().state_dict()["4.weight"])


def change_on_one_rank(run: Run, change: Change, who: int, at: int) -> None:
    session = Session(run)
    session.advance(at)
    if rank() == who:
        change(session)
    session.advance(3)


ALONE = (
    "other parameters are trained now, or other buffers registered, on rank(s) [{}] only; freeze, "
    "unfreeze and add"
)


@pytest.mark.parametrize("distribute", [{}, NETWORK, {**NETWORK, **VARIES}], ids=str)
@pytest.mark.parametrize(("change", "who"), [(unfreeze, 1), (freeze, 0), (grow, 1)])
def test_a_change_on_one_rank_is_told_on_all(
    change: Change, who: int, distribute: dict[str, Any]
) -> None:
    run = replace(RUN, distribute=distribute)
    for message in messages(2, change_on_one_rank, run, change, who, 3):
        assert f"step 3: {ALONE.format(who)}" in message


def late_sampa(base: torch.optim.Optimizer, **options: Any) -> sampa.SharpnessAware:
    parameters = [p for group in base.param_groups for p in group["params"]]
    return sampa.SAMPa(torch.optim.SGD(parameters, lr=0.1, fused=True), checks="late", **options)


@pytest.mark.parametrize("distribute", [{}, NETWORK], ids=str)
def test_a_change_on_one_rank_is_told_where_numbers_are_read_late(
    distribute: dict[str, Any],
) -> None:
    run = replace(RUN, make=late_sampa, distribute=distribute)
    for message in messages(2, change_on_one_rank, run, freeze, 1, 3):
        assert f"step 3: {ALONE.format(1)}" in message


@pytest.mark.parametrize("at", [1, 3])
def test_a_change_on_one_data_rank_is_told_on_all(at: int) -> None:
    """In the first of the two exchanges of a step, which the others only look at after both."""
    run = replace(RUN, make=sampa.SAM, distribute={"branches": 1})
    for message in messages(3, change_on_one_rank, run, freeze, 2, at):
        assert f"step {at}: {ALONE.format(2)}" in message


def sam_on_two_branches(change: Change, who: tuple[int, ...]) -> Outcome:
    """Nothing is exchanged but what is compared at intervals."""
    warnings.simplefilter("ignore")
    session = Session(replace(RUN, make=sampa.SAM, distribute={"check_every": 3}))
    session.advance(3)
    if rank() in who:
        change(session)
    session.advance(5)
    return session.outcome()


def test_branches_that_exchange_nothing_follow_at_the_next_comparison() -> None:
    (expected,) = run_ranks(1, sam_on_two_branches, unfreeze, (0, 1))
    for outcome in run_ranks(2, sam_on_two_branches, unfreeze, (0, 1)):
        assert differences(outcome, expected) == []
    for message in messages(2, sam_on_two_branches, grow, (1,)):
        assert ALONE.format(1) in message


def change_differently(distribute: dict[str, Any]) -> None:
    session = Session(replace(RUN, distribute=distribute))
    session.advance(3)
    (freeze if rank() else unfreeze)(session)
    session.advance(1)


@pytest.mark.parametrize("distribute", [{}, NETWORK], ids=str)
def test_different_changes_are_told_by_name(distribute: dict[str, Any]) -> None:
    for message in messages(2, change_differently, distribute):
        assert "the optimizer differs between ranks: rank 0 has parameter 0: 1.weight" in message


def train_a_stranger(distribute: dict[str, Any]) -> None:
    session = Session(replace(RUN, distribute=distribute))
    session.advance(3)
    session.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})
    with pytest.raises(ValueError, match="every trained parameter must belong to"):
        session.advance(1)
    session.advance(1)  # and again


@pytest.mark.parametrize("distribute", [{}, NETWORK], ids=str)
def test_a_parameter_outside_of_the_model_is_refused_later_too(distribute: dict[str, Any]) -> None:
    for message in messages(2, train_a_stranger, distribute):
        assert "got 1 others on rank 0 (the first is parameter 8 of the optimizer)" in message


def replace_unseen(distribute: dict[str, Any]) -> None:
    session = Session(replace(RUN, distribute=distribute))
    session.advance(3)
    layers_of(session)[5] = nn.Linear(16, 10)  # which the optimizer does not know
    session.advance(1)


@pytest.mark.parametrize("distribute", [{}, NETWORK], ids=str)
def test_a_parameter_replaced_in_the_model_alone_is_told(distribute: dict[str, Any]) -> None:
    for message in messages(2, replace_unseen, distribute):
        assert "no gradient arrived for '5.weight' on rank(s) [0, 1]" in message
        assert "if it was replaced in the model, give the optimizer the new one" in message


def freeze_all(distribute: dict[str, Any]) -> None:
    session = Session(replace(RUN, distribute=distribute))
    session.advance(3)
    session.model.requires_grad_(False)
    session.advance(1)


@pytest.mark.parametrize("distribute", [{}, NETWORK], ids=str)
def test_a_model_that_is_frozen_as_a_whole_is_refused(distribute: dict[str, Any]) -> None:
    for message in messages(2, freeze_all, distribute):
        assert "at least one parameter of the distributed model must be trained" in message


def convert(distribute: dict[str, Any]) -> None:
    session = Session(replace(RUN, distribute=distribute))
    session.advance(3)
    session.model.double()
    session.advance(1)


@pytest.mark.parametrize("distribute", [{}, NETWORK], ids=str)
def test_a_model_converted_later_is_refused(distribute: dict[str, Any]) -> None:
    for message in messages(2, convert, distribute):
        assert "on cpu as torch.float32 that are now on cpu as torch.float64" in message
        assert "convert or move it before sampa.distribute" in message


class ChangedBefore(Session):
    """Between `distribute` and the optimizer."""

    def __init__(self, run: Run) -> None:
        def net_of_double() -> nn.Module:
            return model

        model = run.net()
        super().__init__(replace(run, net=net_of_double, groups=self.changed))

    def changed(self, model: nn.Module) -> list[nn.Parameter]:
        model.double()
        unfreeze(self)
        freeze(self)
        return list(model.parameters())


def train_what_changed_before(run: Run) -> Outcome:
    session = ChangedBefore(run)
    for _ in range(4):
        x, y = next(session._batches)
        session.losses.append(session.optimizer.step(session.loss_fn, (x.double(), y)))
    return session.outcome()


@pytest.mark.parametrize("distribute", [{}, NETWORK], ids=str)
def test_what_changed_before_the_optimizer_was_built_is_followed(
    distribute: dict[str, Any],
) -> None:
    run = replace(RUN, distribute=distribute)
    (expected,) = run_ranks(1, train_what_changed_before, run)
    for outcome in run_ranks(2, train_what_changed_before, run):
        assert differences(outcome, expected) == []


def calls_of_a_hook(distribute: dict[str, Any]) -> list[int]:
    """Of a user's, on the model that a user holds."""
    session = Session(replace(RUN, distribute=distribute))
    model, calls = session.executor.model, [0]
    model.register_forward_pre_hook(lambda *_: calls.append(calls.pop() + 1))
    session.advance(3)
    unfreeze(session)
    session.advance(2)
    assert session.executor.model is model
    assert model.training
    return calls


@pytest.mark.parametrize("distribute", [{}, NETWORK], ids=str)
def test_the_model_that_a_user_holds_stays(distribute: dict[str, Any]) -> None:
    assert run_ranks(2, calls_of_a_hook, distribute) == [[5], [5]]
