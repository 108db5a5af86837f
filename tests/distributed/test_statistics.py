"""BatchNorm statistics: counted once per batch by one branch, the same everywhere on demand."""

from __future__ import annotations

import copy
import datetime
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sampa
from sampa.execution.parallel.groups import Groups, open_mesh
from sampa.execution.parallel.model import confine_to_branch
from sampa.method import MethodDefaults, Rounds
from sampa.vectors.vector import mix
from tests.distributed.training import Run, Session, differences, net_without_noise, train
from tests.problems import image_batches
from tests.ranks import collect_ranks, run_ranks

pytestmark = pytest.mark.dist

BEHIND = "are not those of branch 1, which counted them; call executor.model.eval()"


def statistics(model: nn.Module) -> dict[str, Tensor]:
    return {name: b.clone() for name, b in model.named_buffers()}


def before_and_after(bring_together: Callable[[Session], Any]) -> tuple[Any, Any]:
    session = Session(Run())
    session.advance(10)
    before = statistics(session.model)
    bring_together(session)
    return before, statistics(session.model)


def by_eval(session: Session) -> None:
    session.executor.model.eval()


def by_sync(session: Session) -> None:
    session.executor.sync_buffers()


@pytest.mark.parametrize("bring_together", [by_eval, by_sync])
def test_branch_0_receives_the_statistics_of_branch_1(
    bring_together: Callable[[Session], None],
) -> None:
    (stale, synced), (counted, kept) = run_ranks(2, before_and_after, bring_together)
    assert differences(stale, counted) != []
    assert differences(synced, counted) == []
    assert differences(kept, counted) == []


def evaluate_now_and_then() -> tuple[list[dict[str, Tensor]], list[Tensor]]:
    session = Session(Run())
    (x, _), *_ = image_batches(1, seed=9)
    seen, outputs = [], []
    for steps in (1, 3, 10):
        session.advance(steps)
        session.executor.model.eval()
        with torch.no_grad():
            outputs.append(session.executor.model(x))
        seen.append(statistics(session.model))
        session.executor.model.train()
    return seen, outputs


def test_evaluation_between_steps_gives_the_numbers_of_one_process() -> None:
    expected = run_ranks(1, evaluate_now_and_then)[0]
    assert [differences(r, expected) for r in run_ranks(2, evaluate_now_and_then)] == [[], []]


def save(session: Session) -> Any:
    return session.model.state_dict()


def save_through_executor(session: Session) -> Any:
    return session.executor.model.state_dict()


def evaluate_raw_model(session: Session) -> Any:
    session.model.eval()
    return session.model(torch.zeros(2, 1, 8, 8))


def use_after_training(use: Callable[[Session], Any]) -> str:
    session = Session(Run())
    session.advance(3)
    try:
        use(session)
    except RuntimeError as error:
        return str(error)
    return "used"


@pytest.mark.parametrize("use", [save, save_through_executor, evaluate_raw_model])
def test_statistics_that_are_behind_are_refused_on_that_rank(use: Callable[[Session], Any]) -> None:
    refused, used = run_ranks(2, use_after_training, use)
    assert BEHIND in refused
    assert used == "used"


def use_without_batch_norm(use: Callable[[Session], Any]) -> str:
    session = Session(Run(net=net_without_noise))
    session.advance(3)
    use(session)
    return "used"


@pytest.mark.parametrize("use", [save, evaluate_raw_model])
def test_a_model_without_batch_norm_is_never_refused(use: Callable[[Session], Any]) -> None:
    assert run_ranks(2, use_without_batch_norm, use) == ["used"] * 2


def use_after_one_step(use: Callable[[Session], Any]) -> str:
    session = Session(Run())
    session.advance(1)
    use(session)
    return "used"


def test_after_a_round_of_one_probe_no_rank_is_behind() -> None:
    assert run_ranks(2, use_after_one_step, save) == ["used"] * 2


def copies_of_the_model() -> list[bool]:
    session = Session(Run())
    session.advance(3)
    average = torch.optim.swa_utils.AveragedModel(session.model)
    with torch.no_grad():
        average.eval()(torch.zeros(2, 1, 8, 8))
    copy.deepcopy(session.model).state_dict()
    buffer = io.BytesIO()
    torch.save(session.model, buffer)
    buffer.seek(0)
    pickled = torch.load(buffer, weights_only=False)
    weight = session.model.get_parameter("head.weight")
    same_weights = torch.equal(pickled.head.weight, weight)
    session.advance(2)
    changed = not torch.equal(pickled.head.weight, weight)
    return [same_weights, changed]


def test_a_copy_of_the_model_is_free_of_the_executor() -> None:
    """Averages of weights deep-copy the model; pickling it still works, too."""
    assert run_ranks(2, copies_of_the_model) == [[True, True]] * 2


@dataclass(frozen=True)
class TurnTaking(MethodDefaults):
    """Counts in the first probe at even steps, in the second at odd ones."""

    def rounds(self, context: sampa.Context, state: None) -> Rounds:
        odd = bool(context.t % 2)
        a, b = yield (
            sampa.Probe(mode=sampa.Mode(statistics=not odd)),
            sampa.Probe(mode=sampa.Mode(statistics=odd)),
        )
        return sampa.Update(mix(a, b, 0.5))


def turn_taking(base: torch.optim.Optimizer, **options: Any) -> sampa.SharpnessAware:
    return sampa.SharpnessAware(base, TurnTaking(), **options)


def test_branches_may_take_turns_in_counting() -> None:
    run = Run(steps=11, make=turn_taking)
    expected = run_ranks(1, train, run)[0]
    assert [differences(o, expected) for o in run_ranks(2, train, run)] == [[], []]


@dataclass(frozen=True)
class BothCount(MethodDefaults):
    def rounds(self, context: sampa.Context, state: None) -> Rounds:
        a, b = yield (sampa.Probe(), sampa.Probe())
        return sampa.Update(mix(a, b, 0.5))


def both_count(base: torch.optim.Optimizer, **options: Any) -> sampa.SharpnessAware:
    return sampa.SharpnessAware(base, BothCount(), **options)


def test_two_probes_that_count_at_once_are_refused_with_the_reason() -> None:
    for outcome in collect_ranks(2, train, Run(make=both_count)):
        assert "only one probe of a round may count in BatchNorm statistics, got 2" in outcome


def sync_batch_norm_members() -> list[int]:
    """DDP refuses the layer on a CPU, so the piece that confines it is called by itself."""
    groups = Groups(open_mesh(torch.device("cpu"), 2, datetime.timedelta(seconds=60)))
    layer = nn.SyncBatchNorm(2)
    confine_to_branch(layer, groups)
    return torch.distributed.get_process_group_ranks(layer.process_group)


def test_sync_batch_norm_normalizes_over_its_own_branch_only() -> None:
    assert run_ranks(4, sync_batch_norm_members) == [[0, 1], [0, 1], [2, 3], [2, 3]]


def buffers_of_rank_0() -> Tensor:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model.get_buffer("1.running_mean").add_(int(os.environ["RANK"]))
    sampa.distribute(model)
    return model.get_buffer("1.running_mean")


def test_all_ranks_start_with_the_buffers_of_rank_0() -> None:
    assert [b.tolist() for b in run_ranks(2, buffers_of_rank_0)] == [[0.0, 0.0]] * 2
