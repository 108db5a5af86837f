"""`sampa.Loss(value, outputs=...)`: what the clean pass computed, without a second one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sampa
from tests.distributed.training import Run, Session
from tests.problems import Batch, Points, flat, sgd, tiny_mlp, vector_batches
from tests.ranks import run_ranks
from tests.variants import ACTIVE, BATCHES, Sample, build, loss_of, net


def keeping(model: nn.Module, points: Points | None = None) -> Any:
    """A loss_fn that gives its logits, and notes where it was called."""

    def loss_fn(batch: Sample) -> sampa.Loss:
        x, y, *index = batch
        logits = model(x)
        per_sample = F.cross_entropy(logits, y, reduction="none")
        if points is not None:
            points.note(flat(model), batch)
        kept = {"logits": logits, "y": y}
        return sampa.Loss(per_sample.mean(), per_sample, logits, y, index[0], outputs=kept)

    return loss_fn


@pytest.mark.parametrize("name", ACTIVE)
def test_outputs_come_from_the_pass_of_the_reported_loss(name: str) -> None:
    model = net()
    optimizer = build(name, model)
    for batch in BATCHES[:3]:
        loss = optimizer.step(keeping(model), batch)
        assert optimizer.last is not None
        kept = optimizer.last.outputs
        parts = kept if isinstance(kept, list) else [kept]
        assert len(parts) == (2 if "msam" in name else 1)
        assert not any(part["logits"].requires_grad for part in parts)
        logits = torch.cat([part["logits"] for part in parts])
        targets = batch[1][: 3 if name == "async-sam" else 6]  # it climbs on half of the batch
        assert torch.equal(torch.cat([part["y"] for part in parts]), targets)
        # The mean of the parts' means: sums in another order.
        torch.testing.assert_close(F.cross_entropy(logits, targets), loss, rtol=0, atol=1e-15)


def test_sampa_keeps_the_logits_at_the_lookahead_on_the_incoming_batch() -> None:
    model, points = tiny_mlp(), Points()
    optimizer = sampa.SAMPa(sgd(model))
    for batch in BATCHES[:3]:
        optimizer.step(keeping(model, points), batch)
    assert optimizer.last is not None
    (y,) = points.on(BATCHES[2])  # x̃ of this batch is a step ahead
    other = tiny_mlp()
    nn.utils.vector_to_parameters(y, other.parameters())
    assert torch.equal(optimizer.last.outputs["logits"], other(BATCHES[2][0]).detach())


def test_nothing_is_kept_that_was_not_given_and_no_pass_is_added() -> None:
    counts = []
    for loss_of_model in (loss_of, keeping):
        model, calls = net(), 0
        optimizer, loss_fn = build("sam", model), loss_of_model(model)

        def counting(batch: Sample, loss_fn: Any = loss_fn) -> Any:
            nonlocal calls
            calls += 1
            return loss_fn(batch)

        optimizer.step(counting, BATCHES[0])
        assert optimizer.last is not None
        assert (optimizer.last.outputs is None) == (loss_of_model is loss_of)
        counts.append(calls)
    assert counts == [2, 2]


def test_micro_batches_are_listed_in_the_order_of_the_samples() -> None:
    model = net()
    optimizer = build("sampa", model, accumulate=3)
    optimizer.step(keeping(model), BATCHES[0])
    assert optimizer.last is not None
    ys = [part["y"] for part in optimizer.last.outputs]
    assert [len(y) for y in ys] == [2, 2, 2]
    assert torch.equal(torch.cat(ys), BATCHES[0][1])


@dataclass
class Output:
    """As models of other libraries return it."""

    logits: Tensor
    hidden: tuple[Tensor, ...]
    note: str = "kept"


def test_outputs_may_be_any_nest() -> None:
    model = tiny_mlp()
    x, y = vector_batches(1)[0]

    def loss_fn(batch: Batch) -> sampa.Loss:
        logits = model(batch[0])
        return sampa.Loss(F.cross_entropy(logits, batch[1]), outputs=Output(logits, (logits * 2,)))

    optimizer = sampa.SAM(sgd(model))
    optimizer.step(loss_fn, (x, y))
    assert optimizer.last is not None
    found = optimizer.last.outputs
    assert isinstance(found, Output)
    assert found.note == "kept"
    assert torch.equal(found.hidden[0], 2 * found.logits)
    assert found.hidden[0].grad_fn is None


def test_a_dropped_step_still_tells_its_outputs() -> None:
    model = net()
    optimizer = build("sam", model)
    x, *rest = BATCHES[0]
    optimizer.step(keeping(model), (x * torch.nan, *rest))
    assert optimizer.last is not None
    assert optimizer.last.skipped
    assert optimizer.last.outputs["logits"].isnan().all()


# ---- on ranks ----------------------------------------------------------------------------------


def loss_with_outputs(model: nn.Module, batch: Batch) -> sampa.Loss:
    x, y = batch
    logits = model(x)
    return sampa.Loss(F.cross_entropy(logits, y), outputs=logits)


def kept_on_ranks(run: Run) -> tuple[Any, list[Any]]:
    session = Session(run)
    session.advance(run.steps)
    assert session.optimizer.last is not None
    kept = session.optimizer.last.outputs
    return kept, session.executor.gather(kept)


@pytest.mark.dist
def test_a_rank_has_the_outputs_that_it_computed_and_gather_gives_all_of_them() -> None:
    run = Run(steps=3, loss=loss_with_outputs)
    ((alone, listed),) = run_ranks(1, kept_on_ranks, run)
    assert torch.equal(listed[0], alone)
    (first, gathered), (second, also) = run_ranks(2, kept_on_ranks, run)
    assert first is None  # it was at x̃_t, on the held batch
    assert torch.equal(second, alone)
    assert [len(gathered), len(also)] == [1, 1]
    assert torch.equal(gathered[0], alone)


@pytest.mark.dist
def test_data_ranks_have_the_outputs_of_their_shards() -> None:
    run = Run(steps=3, make=sampa.SAM, loss=loss_with_outputs, distribute={"branches": 1})
    (first, gathered), (second, also) = run_ranks(2, kept_on_ranks, run)
    assert first.shape == second.shape == (8, 10)
    for found in (gathered, also):
        assert torch.equal(torch.stack(found), torch.stack([first, second]))
