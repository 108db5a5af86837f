"""Ctrl-C while commands work: one line, 130, nobody left. `report` and `sweep` have their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.interrupting import Ended, interrupted

pytestmark = [pytest.mark.dist, pytest.mark.slow]


def after(seconds: float) -> Callable[[], bool]:
    """Whatever the command is doing then: it may still be importing torch."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def one_line(ended: Ended) -> str:
    assert ended.code == 130, ended
    said = [line for line in (ended.out + ended.err).splitlines() if line]
    told = [line for line in said if "interrupted" in line or "stopped" in line]
    assert len(told) == 1, ended
    assert "Traceback" not in ended.out + ended.err
    return told[0]


@pytest.mark.parametrize("seconds", [2.0, 12.0])
def test_bench(seconds: float) -> None:
    ended = interrupted(["bench", "--model", "mlp", "--batch-size", "4"], after(seconds))
    assert one_line(ended) == "sampa bench: interrupted"


def test_demo_while_its_ranks_are_started_and_while_they_train(tmp_path: Path) -> None:
    command = ["demo", "--out", str(tmp_path)]
    assert one_line(interrupted(command, after(8.0))) == "sampa demo: interrupted"
    first = tmp_path / "sgd" / "seed-0"
    line = one_line(interrupted(command, (first / "times.jsonl").exists))
    assert line.startswith("sgd seed 0: stopped at batch ")
    assert line.endswith("; the same command goes on")


def test_reproduce(tmp_path: Path) -> None:
    command = ["reproduce", "tab-noise", "--scale", "smoke", "--out", str(tmp_path)]
    line = one_line(interrupted(command, lambda: any(tmp_path.rglob("times.jsonl"))))
    assert line.startswith(("tab-noise: stopped at batch ", "sampa reproduce: interrupted"))
