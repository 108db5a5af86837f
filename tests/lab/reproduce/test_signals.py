"""SIGTERM in the midst of an experiment: its exit code, and the same command goes on."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import sys
from pathlib import Path

import pytest

from sampa.lab.cli import main
from tests.lab.training.processes import call_at_points

pytestmark = pytest.mark.dist

_context = mp.get_context("forkserver")  # the one of tests.ranks, with everything loaded


def stopped_command(arguments: list[str]) -> None:
    """The command in a process that is sent SIGTERM at the second batch of a run."""

    def stop(point: str) -> None:
        if point == "batch 1":
            os.kill(os.getpid(), signal.SIGTERM)

    call_at_points(stop)
    sys.exit(main(arguments))


@pytest.mark.parametrize("name", ["fig-gradient-gap", "tab-imagenet"])
def test_a_stopped_experiment_says_so_and_goes_on(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    command = ["reproduce", name, "--scale", "smoke", "--seeds", "1", "--out", str(tmp_path)]
    process = _context.Process(target=stopped_command, args=(command,))
    process.start()
    process.join(120)
    assert process.exitcode == 128 + signal.SIGTERM
    assert not (tmp_path / f"{name}-smoke" / "results.json").exists()
    assert main(command) == 0
    assert (tmp_path / f"{name}-smoke" / "results.json").exists()
