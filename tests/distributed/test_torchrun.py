"""A user's script under the real torchrun."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.training import differences

# What the gloo of torch 2.10 writes by itself; the words of two ranks may be mixed.
GLOO_2_10 = re.compile(
    r"\[Gloo\] Rank |\d+| is connected to | peer ranks\. "
    r"|Expected number of connected peer ranks is : |\n"
)

pytestmark = pytest.mark.dist

SCRIPT = str(Path(__file__).parent / "scripts" / "train.py")
TORCHRUN = [
    *("-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", "2"),
    *("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"),
]


def python(*args: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    return subprocess.run(
        [sys.executable, *args],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def load(path: Path) -> Any:
    return torch.load(path, weights_only=False)


@pytest.fixture(scope="module")
def parallel(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    out = tmp_path_factory.mktemp("torchrun")
    return out, python(*TORCHRUN, SCRIPT, str(out / "rank"))


def test_two_ranks_under_torchrun_equal_plain_python_bitwise(
    parallel: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, finished = parallel
    assert finished.returncode == 0, finished.stderr
    monkeypatch.setattr(sys, "argv", [SCRIPT, str(tmp_path / "alone")])
    runpy.run_path(SCRIPT, run_name="__main__")
    expected = load(tmp_path / "alone.0")
    assert differences(load(out / "rank.0"), expected) == []
    assert differences(load(out / "rank.1"), expected) == []


def test_a_script_under_torchrun_ends_without_a_word(parallel: tuple[Path, Any]) -> None:
    """No warning about the group that is still open, none from torch, with warnings as errors."""
    _, finished = parallel
    is_2_10 = torch.__version__.startswith("2.10.")
    said = GLOO_2_10.sub("", finished.stdout) if is_2_10 else finished.stdout
    assert (said, finished.stderr) == ("", "")


@pytest.mark.slow
def test_a_rank_that_fails_under_torchrun_ends_all_quickly(tmp_path: Path) -> None:
    start = time.monotonic()
    finished = python(*TORCHRUN, SCRIPT, str(tmp_path / "rank"), "--fail")
    assert time.monotonic() - start < 100  # starting alone takes some seconds
    assert finished.returncode != 0
    assert "ValueError: rank 1 fails at the end" in finished.stderr
