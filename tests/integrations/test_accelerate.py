"""A loop with Accelerate equals a plain loop with the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader

import sampa
from sampa.integrations.accelerate import SharpnessAwareAccelerator
from tests.integrations.digits import images, small_net
from tests.problems import same_bits
from tests.ranks import run_ranks


def loop(
    folder: Path | None, kind: type[Any], resume: bool = False, parts: int = 1, **keywords: Any
) -> Any:
    """Two epochs; the state is saved after the first, or loaded in its place.

    A step sees several batches with `parts`, or those that are left of an epoch; else one that the
    optimizer cuts. Accelerate's own class stands for a loop that knows nothing of it.
    """
    AcceleratorState._reset_state()  # else the first precision of a process is that of all
    accelerator = kind(cpu=True, gradient_accumulation_steps=parts, **keywords)
    model: Any = small_net()
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    executor = sampa.distribute(model)
    options: dict[str, Any] = {"seed": 7, "max_norm": 0.3, "executor": executor}
    optimizer: Any = sampa.SAMPa(base, rho=0.1, accumulate=2 // parts, **options)
    scheduler: Any = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    loader: Any = DataLoader(images(), batch_size=8 // parts)
    if kind is SharpnessAwareAccelerator:
        prepared = accelerator.prepare(model, optimizer, loader, scheduler)
        model, optimizer, loader, scheduler = prepared
    if resume:
        accelerator.load_state(str(folder))

    def loss_fn(batch: Any) -> Tensor:
        with accelerator.autocast():
            return F.cross_entropy(model(batch[0]), batch[1])

    def plain_step(batch: Any, is_last: bool) -> None:
        window.append(batch)
        if len(window) < parts and not is_last:
            return
        if parts == 1:
            optimizer.step(loss_fn, batch)
        else:
            optimizer.step(lambda part: loss_fn(part) / parts, [*window], in_parts=True)
        window.clear()
        if optimizer.last.updated:
            scheduler.step()

    seen, window = 0, []
    for epoch in range(resume, 2):
        for number, batch in enumerate(loader, 1):
            if kind is Accelerator:
                plain_step(batch, number == len(loader))
            else:
                with accelerator.accumulate(model):
                    optimizer.step(loss_fn, batch)
                    scheduler.step()
            seen += len(accelerator.gather_for_metrics(batch[1]))
        if folder is not None and epoch == 0:
            accelerator.save_state(str(folder))
    executor.sync_buffers()
    module: Any = executor.module
    return module.state_dict(), seen, scheduler.get_last_lr()


@pytest.mark.parametrize("parts", [1, 2])
def test_a_prepared_loop_equals_a_plain_one_and_resumes_bit_for_bit(
    tmp_path: Path, parts: int
) -> None:
    """With both kinds of accumulation, clipping, a scheduler and all samples in the metrics."""
    weights, seen, rate = loop(None, Accelerator, parts=parts)
    ours = loop(tmp_path, SharpnessAwareAccelerator, parts=parts)
    assert same_bits(ours, (weights, 56, rate))
    assert seen == 56
    resumed = loop(tmp_path, SharpnessAwareAccelerator, resume=True, parts=parts)
    assert same_bits(resumed, (weights, 28, rate))


def test_bf16_equals_a_plain_loop_with_autocast() -> None:
    weights, *_ = loop(None, SharpnessAwareAccelerator, mixed_precision="bf16")
    assert same_bits(weights, loop(None, Accelerator, mixed_precision="bf16")[0])
    assert not same_bits(weights, loop(None, Accelerator)[0])


# ---- several processes -------------------------------------------------------------------------


def trained(folder: str) -> list[Any]:
    """One rank: whole and resumed, in float32 and, with accumulated batches, in bf16."""
    found = []
    for precision, parts in KINDS:
        place = Path(folder) / precision
        for resume in (False, True):
            kind = SharpnessAwareAccelerator
            found.append(loop(place, kind, resume, parts, mixed_precision=precision))
    return found


KINDS = [("no", 1), ("bf16", 2)]


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_are_two_branches_and_equal_a_plain_loop(tmp_path: Path) -> None:
    expected = [loop(None, Accelerator, parts=k, mixed_precision=p) for p, k in KINDS]
    for rank in run_ranks(2, trained, str(tmp_path)):
        for i, (weights, seen, rate) in enumerate(rank):
            assert same_bits(weights, expected[i // 2][0])
            assert seen == (28 if i % 2 else 56)
            assert rate == expected[i // 2][2]
    # One process goes on where two were.
    one = loop(tmp_path / "no", SharpnessAwareAccelerator, resume=True)
    assert same_bits(one[0], expected[0][0])


def test_what_does_not_fit_is_refused_with_what_to_write() -> None:
    accelerator = SharpnessAwareAccelerator(cpu=True, gradient_accumulation_steps=2)
    for clip in (accelerator.clip_grad_norm_, accelerator.clip_grad_value_):
        with pytest.raises(RuntimeError, match="pass max_norm= to the optimizer"):
            clip([], 1.0)
    model = small_net()
    optimizer = accelerator.prepare(sampa.SAM(torch.optim.SGD(model.parameters(), lr=0.1)))
    with pytest.raises(RuntimeError, match="gradient_accumulation_steps=2 adds up several batches"):
        optimizer.step(lambda: torch.zeros(()))
