"""Ctrl-C while commands work: one line, 130, no process left; `sweep`, `compare` have their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.interrupting import Ended, interrupted
from tests.lab.training.runs import carry_out, tiny_run

pytestmark = [pytest.mark.dist, pytest.mark.slow]


def after(seconds: float) -> Callable[[], bool]:
    """Whatever the command is doing then: it may still be importing torch."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def loaded(part: str, argument: Path) -> Callable[[], bool]:
    """When the process with an argument has loaded a library whose path has this part."""

    def ready() -> bool:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if str(argument).encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                    return part in (folder / "maps").read_text()
            except OSError:  # another's, or it has just ended
                continue
        return False

    return ready


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


def test_eval_and_flatness_in_one_process_and_in_two(tmp_path: Path) -> None:
    for seed in (0, 1):
        carry_out(tiny_run(seed=seed), tmp_path / "runs" / f"seed-{seed}")
    run = tmp_path / "runs" / "seed-0"
    ended = interrupted(["eval", str(run)], loaded("libtorch_cpu", run))
    assert one_line(ended) == "sampa eval: interrupted"
    for devices, told in (("1", "interrupted"), ("2", "stopped; the same command goes on")):
        out = tmp_path / devices
        command = ["flatness", str(tmp_path / "runs"), "--measures", "all", "--points", "61"]
        command += ["--devices", devices, "--out", str(out)]
        ended = interrupted(command, lambda out=out: any(out.glob("jobs/*.json")))
        assert one_line(ended) == f"sampa flatness: {told}"


def test_report_and_methods(tmp_path: Path) -> None:
    page, table = tmp_path / "report.html", tmp_path / "methods.json"
    ended = interrupted(["methods", "--json", str(table)], loaded("libtorch_cpu", table))
    assert one_line(ended) == "sampa methods: interrupted"
    results = str(Path(__file__).parents[2] / "results")
    ended = interrupted(["report", results, "-o", str(page)], loaded("contourpy", page))
    assert one_line(ended) == "sampa report: interrupted"
    assert list(tmp_path.iterdir()) == []
