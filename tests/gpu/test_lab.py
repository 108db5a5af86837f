"""`sampa train` and `sampa bench` on accelerators: loading, times, memory."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from sampa.lab.bench.meters import meter_of
from sampa.lab.cli import main
from sampa.lab.data.batches import ImageBatches
from sampa.lab.data.digits import load_digits
from sampa.lab.data.plans import Shuffled
from sampa.lab.devices import find_device, in_suited_layout
from sampa.lab.training.loading import Loader
from sampa.lab.training.loop import train
from sampa.lab.training.session import Settings
from tests.gpu.devices import ONE_DEVICE, deterministic
from tests.lab.training.runs import BATCHES, outcome, tiny_run

SLEEP = 0.05


@pytest.mark.parametrize("device", ONE_DEVICE)
def test_a_batch_arrives_on_its_device_as_it_was_made(device: str) -> None:
    digits, place = load_digits(), find_device(device)
    batches = ImageBatches(digits, Shuffled(np.arange(len(digits)), 64, seed=0), augment_seed=0)
    loader = Loader(batches, 1, place, prefetch=True)
    for number in range(len(batches)):
        arrived, made = loader.batch(number), batches.batch(0, number)
        assert [t.device for t in arrived] == [place] * len(made)
        assert all(torch.equal(a.cpu(), b) for a, b in zip(arrived, made, strict=True))
        assert arrived[0].stride() == in_suited_layout(made[0], place).stride()


def run(out: Path, device: str, *, prefetch: bool, resume: bool = False, steps: int | None = None):
    settings = Settings(
        device=device, quiet=True, prefetch=prefetch, resume=resume, limit_steps=steps
    )
    with deterministic(device):
        train(tiny_run(), out, settings)


@pytest.mark.parametrize("device", ONE_DEVICE)
def test_prefetch_and_a_stop_in_an_epoch_do_not_change_a_bit_of_a_run(
    device: str, tmp_path: Path
) -> None:
    run(tmp_path / "plain", device, prefetch=False)
    run(tmp_path / "ahead", device, prefetch=True, steps=BATCHES + 1)
    run(tmp_path / "ahead", device, prefetch=True, resume=True)
    assert outcome(tmp_path / "ahead") == outcome(tmp_path / "plain")


@pytest.mark.parametrize("device", ONE_DEVICE)
def test_a_meter_counts_all_that_passes_until_the_work_is_done(device: str) -> None:
    meter, x = meter_of(find_device(device)), torch.ones(500, 500, device=device)
    assert SLEEP <= meter.seconds(lambda: time.sleep(SLEEP)) < 20 * SLEEP
    once, often = (meter.seconds(lambda n=n: [x @ x for _ in range(n)]) for n in (1, 200))
    assert 0 < once < often


@pytest.mark.parametrize("device", ONE_DEVICE)
def test_a_meter_has_seen_the_largest_tensor(device: str) -> None:
    meter, size = meter_of(find_device(device)), 200_000_000
    torch.ones(size, dtype=torch.uint8, device=device)
    assert meter.peak_bytes() >= size


@pytest.mark.dist
@pytest.mark.slow
@pytest.mark.gpu(2)
@pytest.mark.parametrize("device", ["cuda"])  # on the CPU: tests/lab/bench/test_command.py
def test_bench_measures_times_and_memory_on_the_device(device: str, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    workload = ["--model", "mlp", "--batch-size", "4", "--rounds", "2", "--memory"]
    assert main(["bench", "--device", device, *workload, "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert min(found["milliseconds"].values()) > 0
    assert found["ratios"]["sam/sampa"]["median"] > 0
    assert (found["conditions"]["machine"]["device"] == "cpu") == (device == "cpu")
    # A gradient, the weights, the momentum: three times the network at the least.
    network = found["counts"]["sampa"]["gradient_bytes"]
    assert min(found["peak_memory"].values()) > 3 * network
