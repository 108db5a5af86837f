"""Lightning's own loop with our strategy equals a plain loop with the library."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader

import sampa
from tests.integrations.digits import CLIP, images, small_net
from tests.ranks import run_ranks

# Lightning's own use of torch, and its advice.
ITS_WARNINGS = [".*LeafSpec.*", ".*does not have many workers.*", ".*dirpath has changed.*"]
pytestmark = [pytest.mark.filterwarnings(f"ignore:{text}") for text in ITS_WARNINGS]


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """Lightning joins a process group of one, and tells so in the environment."""
    before = dict(os.environ)
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    os.environ.clear()
    os.environ.update(before)


def plain_loop(
    method: str = "sampa", bf16: bool = False, batch: int = 8, parts: int = 1, **options: Any
) -> tuple[Any, Any]:
    """What Lightning is to do, in a few lines: the weights, and the losses.

    With several parts a step sees as many batches, or those that are left of an epoch, and is
    followed by one of the scheduler.
    """
    net = small_net()
    base = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    executor = sampa.Serial(net)
    options = {"seed": 7, "max_norm": CLIP, "executor": executor, **options}
    optimizer = sampa.METHODS[method](base, **options)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    def loss_fn(batch: Any) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            return F.cross_entropy(net(batch[0]), batch[1]) / parts

    losses = []
    sampler = executor.sampler(images())  # Lightning shuffles what is trained on, as with DDP
    for epoch in range(2):
        sampler.set_epoch(epoch)
        batches = [*DataLoader(images(), batch_size=batch, sampler=sampler)]
        for first in range(0, len(batches), parts):
            window = batches[first : first + parts]
            if parts == 1:
                losses.append(optimizer.step(loss_fn, window[0]).item())
            else:
                optimizer.step(loss_fn, window, in_parts=True)
                scheduler.step()
        if parts == 1:
            scheduler.step()
    return net.state_dict(), losses


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_an_unchanged_training_step_equals_a_plain_loop_bit_for_bit(tmp_path: Path) -> None:
    """With dropout, BatchNorm, a schedule and clipping; checkpoints are written, steps counted."""
    from tests.integrations.modules import Classifier, Keep, fit

    module = Classifier(rho=0.1, lam=0.2)
    trainer = fit(module, tmp_path)
    weights, losses = plain_loop(rho=0.1, lam=0.2)
    assert same(module.net.state_dict(), weights)
    assert not same(weights, plain_loop(rho=0.1, lam=0.2, max_norm=None)[0])
    assert trainer.global_step == 8
    assert {path.name for path in tmp_path.glob("*.ckpt")} == {
        "epoch=0-step=4.ckpt",
        "epoch=1-step=8.ckpt",
    }
    assert module.passes == 15  # one on the first batch, two on the others
    (keep,) = (c for c in trainer.callbacks if isinstance(c, Keep))  # pyright: ignore[reportAttributeAccessIssue]
    assert keep.losses == losses  # at clean points, and once per batch
    metrics = trainer.callback_metrics
    assert metrics["sampa/updates"] == 7
    assert metrics["seen"] == 11
    assert {"sampa/sharpness", "sampa/cosine", "sampa/skips"} <= {*metrics}


def test_sam_accumulates_and_trains_in_bf16(tmp_path: Path) -> None:
    from tests.integrations.modules import Classifier, fit

    module = Classifier("sam", rho=0.05, accumulate=2)
    fit(module, tmp_path, precision="bf16-mixed")
    ours = module.net.state_dict()
    assert same(ours, plain_loop("sam", bf16=True, rho=0.05, accumulate=2)[0])
    assert not same(ours, plain_loop("sam", rho=0.05, accumulate=2)[0])


ACCUMULATING: dict[str, Any] = {"accumulate_grad_batches": 4}
WINDOWS: dict[str, Any] = {
    "batch": 2,
    "parts": 4,
}  # an epoch is three windows of four batches, and one of two


def test_accumulated_batches_equal_a_plain_loop_and_resume(tmp_path: Path) -> None:
    """With a schedule by steps, clipping, dropout, BatchNorm and a last window that is short."""
    from tests.integrations.modules import Classifier, fit

    whole, resumed = (Classifier(rho=0.1, interval="step") for _ in range(2))
    trainer = fit(whole, tmp_path / "whole", batch=2, **ACCUMULATING)
    assert same(whole.net.state_dict(), plain_loop(rho=0.1, **WINDOWS)[0])
    assert trainer.global_step == 8
    assert whole.passes == 28 + 26  # each batch twice, but for those of the last window
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.1 * 0.5**8
    checkpoint = str(tmp_path / "whole" / "epoch=0-step=4.ckpt")
    fit(resumed, tmp_path / "resumed", checkpoint, batch=2, **ACCUMULATING)
    assert same(resumed.state_dict(), whole.state_dict())


def test_manual_optimization_equals_a_plain_loop_bit_for_bit(tmp_path: Path) -> None:
    from tests.integrations.modules import Manual, fit

    module = Manual(rho=0.1)
    trainer = fit(module, tmp_path)
    assert same(module.net.state_dict(), plain_loop(rho=0.1)[0])
    assert trainer.global_step == 8
    assert len([*tmp_path.glob("*.ckpt")]) == 2


def test_a_resumed_run_equals_one_that_was_not_interrupted(tmp_path: Path) -> None:
    from tests.integrations.modules import Classifier, fit

    whole, resumed = Classifier(rho=0.1), Classifier(rho=0.1)
    fit(whole, tmp_path / "whole")
    trainer = fit(resumed, tmp_path / "resumed", str(tmp_path / "whole" / "epoch=0-step=4.ckpt"))
    assert same(resumed.state_dict(), whole.state_dict())
    assert trainer.global_step == 8
    assert resumed.passes == 8  # its first batch was not the first of the run


@pytest.mark.filterwarnings("ignore:.training_step. returned .None.")
def test_what_does_not_fit_is_refused_with_what_to_write(tmp_path: Path) -> None:
    from tests.integrations.modules import Classifier, Manual, fit

    with pytest.raises(RuntimeError, match="pass accumulate= to the optimizer, which cuts them"):
        fit(Classifier("msam", num_shards=2), tmp_path, **ACCUMULATING)
    with pytest.raises(ValueError, match='gradient_clip_algorithm must be "norm"'):
        fit(Classifier(), tmp_path, gradient_clip_algorithm="value")

    class Forgetful(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer: Any = self.optimizers()
            optimizer.step()

    with pytest.raises(TypeError, match="step needs the batch in manual optimization"):
        fit(Forgetful(), tmp_path)

    class Silent(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            pass

    with pytest.raises(RuntimeError, match="training_step must return the loss"):
        fit(Silent(), tmp_path)


# ---- several processes -------------------------------------------------------------------------


def trained(folder: str, devices: int, batch: int = 8) -> list[tuple[Any, ...]]:
    """One rank: automatic, resumed, manual and accumulating runs."""
    from tests.integrations.modules import Classifier, Manual, fit

    for text in ITS_WARNINGS:
        warnings.filterwarnings("ignore", text)
    results = []
    checkpoint = f"{folder}/automatic/epoch=0-step=4.ckpt"
    for name, kind, ckpt in (
        ("automatic", Classifier, None),
        ("resumed", Classifier, checkpoint),
        ("manual", Manual, None),
    ):
        module = kind(rho=0.1)
        trainer = fit(module, f"{folder}/{name}", ckpt, batch, devices=devices)
        seen = trainer.callback_metrics.get("seen")
        results.append((module.net.state_dict(), trainer.global_step, seen))
    module = Classifier(rho=0.1, interval="step")
    trainer = fit(module, f"{folder}/window", batch=2, devices=devices, **ACCUMULATING)
    results.append((module.net.state_dict(), trainer.global_step, None))
    return results


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_are_two_branches_and_equal_one(tmp_path: Path) -> None:
    weights = [plain_loop(rho=0.1)[0]] * 3 + [plain_loop(rho=0.1, **WINDOWS)[0]]
    for rank in run_ranks(2, trained, str(tmp_path), 2):
        for (theirs, steps, _), expected in zip(rank, weights, strict=True):
            assert same(theirs, expected)
            assert steps == 8


@pytest.mark.slow
@pytest.mark.dist
def test_two_branches_of_two_data_ranks_agree_and_resume_to_the_same_bits(tmp_path: Path) -> None:
    """As many steps as one process with twice the batch on each rank."""
    ranks = run_ranks(4, trained, str(tmp_path), 4, 4)
    (weights, _, _), *_ = ranks[0]
    for automatic, resumed, _, accumulating in ranks:
        assert same(automatic[0], weights)
        assert same(resumed[0], weights)
        assert same(accumulating[0], ranks[0][-1][0])
        assert (automatic[1], accumulating[1]) == (8, 4)
