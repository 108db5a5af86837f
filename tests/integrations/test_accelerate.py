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


def loop(folder: Path | None, kind: type[Any], resume: bool = False, **keywords: Any) -> Any:
    """Two epochs; the state is saved after the first, or loaded in its place."""
    AcceleratorState._reset_state()  # else the first precision of a process is that of all
    accelerator = kind(cpu=True, **keywords)
    model: Any = small_net()
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    executor = sampa.distribute(model)
    options: dict[str, Any] = {"seed": 7, "max_norm": 0.3, "accumulate": 2, "executor": executor}
    optimizer: Any = sampa.SAMPa(base, rho=0.1, **options)
    scheduler: Any = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    loader: Any = DataLoader(images(), batch_size=8)
    if kind is SharpnessAwareAccelerator:
        prepared = accelerator.prepare(model, optimizer, loader, scheduler)
        model, optimizer, loader, scheduler = prepared
    if resume:
        accelerator.load_state(str(folder))

    def loss_fn(batch: Any) -> Tensor:
        with accelerator.autocast():
            return F.cross_entropy(model(batch[0]), batch[1])

    seen = 0
    for epoch in range(resume, 2):
        for batch in loader:
            optimizer.step(loss_fn, batch)
            if optimizer.last.updated:
                scheduler.step()
            seen += len(accelerator.gather_for_metrics(batch[1]))
        if folder is not None and epoch == 0:
            accelerator.save_state(str(folder))
    executor.sync_buffers()
    module: Any = executor.module
    return module.state_dict(), seen, scheduler.get_last_lr()


def test_a_prepared_loop_equals_a_plain_one_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    """With accumulation, clipping, a scheduler and all samples in the metrics."""
    weights, seen, rate = loop(None, Accelerator)
    assert same_bits(loop(tmp_path, SharpnessAwareAccelerator), (weights, 56, rate))
    assert seen == 56
    assert same_bits(loop(tmp_path, SharpnessAwareAccelerator, resume=True), (weights, 28, rate))


def test_bf16_equals_a_plain_loop_with_autocast() -> None:
    weights, *_ = loop(None, SharpnessAwareAccelerator, mixed_precision="bf16")
    assert same_bits(weights, loop(None, Accelerator, mixed_precision="bf16")[0])
    assert not same_bits(weights, loop(None, Accelerator)[0])


# ---- several processes -------------------------------------------------------------------------


def trained(folder: str) -> list[Any]:
    """One rank: whole and resumed, in float32 and in bf16."""
    found = []
    for precision in ("no", "bf16"):
        place = Path(folder) / precision
        for resume in (False, True):
            found.append(loop(place, SharpnessAwareAccelerator, resume, mixed_precision=precision))
    return found


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_are_two_branches_and_equal_a_plain_loop(tmp_path: Path) -> None:
    expected = [loop(None, Accelerator, mixed_precision=p) for p in ("no", "bf16")]
    for rank in run_ranks(2, trained, str(tmp_path)):
        for i, (weights, seen, rate) in enumerate(rank):
            assert same_bits(weights, expected[i // 2][0])
            assert seen == (28 if i % 2 else 56)
            assert rate == expected[i // 2][2]
    # One process goes on where two were.
    one = loop(tmp_path / "no", SharpnessAwareAccelerator, resume=True)
    assert same_bits(one[0], expected[0][0])


def test_what_does_not_fit_is_refused_with_what_to_write() -> None:
    with pytest.raises(ValueError, match="pass accumulate=2 to the optimizer"):
        loop(None, SharpnessAwareAccelerator, gradient_accumulation_steps=2)
    accelerator = SharpnessAwareAccelerator(cpu=True)
    with pytest.raises(RuntimeError, match=r"pass max_norm=1\.0 to the optimizer"):
        accelerator.clip_grad_norm_([], 1.0)
    with pytest.raises(RuntimeError, match="pass max_norm= to the optimizer"):
        accelerator.clip_grad_value_([], 1.0)
