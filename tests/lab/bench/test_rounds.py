"""How many rounds a benchmark makes if nobody says, and networks of the user's own in it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch

from sampa.lab.bench import rounds
from sampa.lab.bench.contenders import Contender, Placement
from sampa.lab.bench.rounds import LEAST_ROUNDS, MOST_ROUNDS, take_turns
from sampa.lab.bench.workloads import Bench, Workload
from sampa.lab.cli import main

BENCH = Bench(Workload("mlp", 4), torch.device("cpu"), 0, 1)
NET = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, num_classes, in_channels):
        super().__init__(nn.Flatten(), nn.Linear(in_channels * 6 * 5, num_classes))
"""


def contender(seconds: float) -> Contender:
    return Contender("nap", Placement.ONE_DEVICE, lambda _: lambda: time.sleep(seconds))


@pytest.mark.parametrize(
    ("seconds", "expected"), [(1000.0, LEAST_ROUNDS), (2.0, 50), (0.001, MOST_ROUNDS)]
)
def test_as_many_rounds_as_take_about_two_minutes(seconds: float, expected: int) -> None:
    """One that takes 2 s is made 50 times: 100 s, and processes need some time to start."""
    assert rounds._fitting_rounds(BENCH, seconds) == expected


def test_every_round_after_the_first_is_counted_in(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def fitting(_bench: Bench, seconds: float) -> int:
        seen.append(seconds)
        return 7

    monkeypatch.setattr(rounds, "_fitting_rounds", fitting)
    times, _ = take_turns(BENCH, [contender(0.01)], None)
    assert len(times["nap"]) == 7
    assert [s >= 0.02 for s in seen] == [True] * 7  # a step that is not timed, and one that is
    asked, _ = take_turns(BENCH, [contender(0.0)], 3)
    assert (len(asked["nap"]), len(seen)) == (3, 7)  # who says how many is not overruled


def test_a_machine_that_becomes_slow_does_not_lengthen_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock ends it, not a plan of the first moments."""
    naps = iter([0.001] * 8 + [0.05] * 1000)
    slowing = Contender("nap", Placement.ONE_DEVICE, lambda _: lambda: time.sleep(next(naps)))
    monkeypatch.setattr(rounds, "TIME_FOR_ROUNDS", 1.0)
    began = time.perf_counter()
    times, _ = take_turns(BENCH, [slowing], None)
    assert LEAST_ROUNDS < len(times["nap"]) < 20
    assert time.perf_counter() - began < 3  # as planned in the beginning it would be 20 s


def test_a_sample_of_another_shape_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nets.py").write_text(NET)
    model = f"{tmp_path / 'nets.py'}:Net"
    assert main(["bench", "--model", model, "--shape", "1x28x28"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "does not take inputs of 1x28x28" in line
    assert main(["bench", "--model", model, "--shape", "1by28"]) == 2
    assert "shape must be numbers joined by x, such as 3x32x32" in capsys.readouterr().err


@pytest.mark.dist
@pytest.mark.slow
def test_a_network_of_ones_own_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nets.py").write_text(NET)
    out = tmp_path / "bench.json"
    own = ["--model", f"{tmp_path / 'nets.py'}:Net", "--shape", "2x6x5", "--batch-size", "4"]
    assert main(["bench", *own, "--rounds", "2", "--advise", "--json", str(out)]) == 0
    result = json.loads(out.read_text())
    assert result["conditions"]["problem"]["shape"] == "2x6x5"
    assert result["counts"]["sampa"]["gradient_bytes"] == 4 * (2 * 6 * 5 + 1) * 10
    shown = " ".join(capsys.readouterr().out.split())
    assert "use SAM" in shown or "use data-parallel SAM" in shown
