"""Batches made ahead of time are the same batches, in the same order, however a run goes."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from sampa.lab import devices
from sampa.lab.reproduce.gap import Watcher
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.loading import Loader
from sampa.lab.training.loop import train
from sampa.lab.training.method import checked_method
from sampa.lab.training.session import Clock, SavedLoop, Settings
from tests.lab.training.runs import BATCHES, TOTAL, Outcome, carry_out, outcome, tiny_run

CPU = torch.device("cpu")


class Numbered:
    """Batches that are their own numbers, and who made them."""

    def __init__(self, fails_at: int = -1, seconds: float = 0.0) -> None:
        self.fails_at, self.seconds = fails_at, seconds
        self.made: list[int] = []
        self.threads: set[str] = set()

    def __len__(self) -> int:
        return BATCHES

    def batch(self, epoch: int, number: int) -> Any:
        position = epoch * BATCHES + number
        self.made.append(position)
        self.threads.add(threading.current_thread().name)
        time.sleep(self.seconds)
        if position == self.fails_at:
            raise ValueError(f"batch {position} cannot be read")
        return {"index": torch.tensor([epoch, number])}


def numbers(loader: Loader, positions: range | list[int]) -> list[list[int]]:
    return [loader.batch(position)["index"].tolist() for position in positions]


@pytest.mark.parametrize("prefetch", [False, True])
def test_every_batch_is_handed_out_by_its_number(prefetch: bool) -> None:
    loader = Loader(Numbered(), 2, CPU, prefetch)
    everything = [[epoch, number] for epoch in range(2) for number in range(BATCHES)]
    assert numbers(loader, range(TOTAL)) == everything
    assert numbers(loader, [4, 3, 5, 0]) == [everything[i] for i in (4, 3, 5, 0)]


def test_each_batch_is_made_once_and_none_beyond_the_last() -> None:
    batches = Numbered()
    numbers(Loader(batches, 2, CPU, prefetch=True), range(TOTAL))
    assert batches.made == list(range(TOTAL))


def test_the_next_batch_is_made_while_the_step_works() -> None:
    batches = Numbered(seconds=0.2)
    loader = Loader(batches, 2, CPU, prefetch=True)
    loader.batch(0)
    time.sleep(0.6)  # the step
    began = time.perf_counter()
    loader.batch(1)
    assert time.perf_counter() - began < 0.1
    assert batches.threads == {"sampa-loader_0"}


def test_on_the_cpu_nothing_is_made_ahead_unless_asked_for() -> None:
    batches = Numbered()
    Loader(batches, 2, CPU).batch(0)
    assert batches.made == [0]
    assert batches.threads == {threading.current_thread().name}


def test_a_batch_that_cannot_be_made_fails_its_own_step_and_not_the_one_before() -> None:
    loader = Loader(Numbered(fails_at=2), 2, CPU, prefetch=True)
    numbers(loader, [0, 1])
    with pytest.raises(ValueError, match="batch 2 cannot be read"):
        loader.batch(2)


# ---- in a run --------------------------------------------------------------------------------


def test_prefetch_does_not_change_a_bit_of_a_run(tmp_path: Path, uninterrupted: Outcome) -> None:
    carry_out(tiny_run(), tmp_path, prefetch=True)
    assert outcome(tmp_path) == uninterrupted


@pytest.mark.parametrize("position", [1, BATCHES - 1, BATCHES, BATCHES + 2])
def test_a_run_with_prefetch_that_stopped_anywhere_goes_on_bit_for_bit(
    position: int, tmp_path: Path, uninterrupted: Outcome
) -> None:
    """After the first batch, inside both epochs, and between them."""
    carry_out(tiny_run(), tmp_path, prefetch=True, limit_steps=position)
    carry_out(tiny_run(), tmp_path, prefetch=True, resume=True)
    assert outcome(tmp_path) == uninterrupted


def test_a_run_that_looks_back_at_the_held_batch_sees_the_same_with_prefetch(
    tmp_path: Path,
) -> None:
    gaps = []
    for prefetch in (False, True):
        settings = Settings(device="cpu", quiet=True, prefetch=prefetch)
        folder, run = RunFolder(tmp_path / str(prefetch)), tiny_run()
        watcher = Watcher(run, folder, settings, checked_method(run))
        folder.path.mkdir()
        watcher.fit()
        gaps.append(watcher.gap)
    assert gaps[0] == gaps[1]
    assert len(gaps[0].cosine) == TOTAL - 1


def test_a_run_with_its_channels_last_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """Weights and images have another layout, checkpoints have not."""
    assert CPU.type in devices.CHANNELS_LAST
    run = tiny_run(method="sampa")
    carry_out(run, tmp_path / "whole", prefetch=True)
    carry_out(run, tmp_path / "halves", prefetch=True, limit_steps=BATCHES + 1)
    carry_out(run, tmp_path / "halves", prefetch=True, resume=True)
    assert outcome(tmp_path / "halves") == outcome(tmp_path / "whole")


def test_images_and_convolutions_have_their_channels_last_where_it_suits_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images, tokens = torch.zeros(2, 3, 4, 4), torch.zeros(2, 3)
    conv = torch.nn.Conv2d(3, 4, 3)
    monkeypatch.setattr(devices, "CHANNELS_LAST", ("cuda",))
    devices.move_model(conv, CPU)
    assert conv.weight.is_contiguous()
    assert devices.in_suited_layout(images, CPU) is images
    monkeypatch.undo()
    devices.move_model(conv, CPU)
    assert conv.weight.is_contiguous(memory_format=torch.channels_last)
    laid_out = devices.in_suited_layout(images, CPU)
    assert laid_out.is_contiguous(memory_format=torch.channels_last)
    assert devices.in_suited_layout(tokens, CPU) is tokens


# ---- the share of time that went by in waiting -----------------------------------------------


def test_the_share_of_waiting_for_data_is_printed_and_recorded_with_each_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = Loader.batch

    def slow(self: Loader, position: int) -> Any:
        time.sleep(0.3 if position < BATCHES else 0.0)
        return original(self, position)

    monkeypatch.setattr(Loader, "batch", slow)
    result = train(tiny_run(), tmp_path, Settings(device="cpu"))
    assert 0 < result.core_seconds < result.seconds - 0.9  # waiting takes no processor time
    lines = [json.loads(line) for line in (tmp_path / "times.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [0, 1]
    first, second = (line["data_share"] for line in lines)
    assert 100 >= first > 50 > second >= 0
    assert lines[0]["seconds"] > 0.9
    shown = capsys.readouterr().out.splitlines()
    assert f"data {first:.1f} %" in shown[0]
    assert f"data {second:.1f} %" in shown[1]


def test_processor_time_goes_on_from_the_clock_of_an_older_checkpoint() -> None:
    saved = SavedLoop.from_json({"place": {"seconds": 5.0}, "metrics_size": 0, "data_ranks": 1})
    assert saved.place.core_seconds == 5.0


def test_the_share_is_of_waiting_and_steps_together() -> None:
    clock = Clock(data=1.0, steps=3.0)
    assert clock.data_share == 25.0
    assert Clock().data_share == 0.0
