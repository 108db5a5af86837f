"""The demo as a user starts it: two processes, three methods, a report, and the times."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.dist
def test_the_demo_compares_methods_and_times_their_steps(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sampa", "demo", "--seeds", "1", "--out", "demo"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = dict(re.findall(r"^(\w+) seed 0: test accuracy (\S+)", done.stdout, re.MULTILINE))
    sgd, sam, sampa = (float(shown[method]) for method in ("sgd", "sam", "sampa"))
    assert min(sam, sampa) > sgd + 10  # its verdict is no noise: about twenty points
    assert "40 % wrong labels" in done.stdout
    assert "SGD 40" in done.stdout
    assert (tmp_path / "demo" / "report.html").is_file()
    found = re.search(r"takes (\S+) times as long .* quartiles (\S+) to (\S+) of", done.stdout)
    assert found is not None
    ratio, low, high = map(float, found.groups())
    assert 0 < low <= ratio <= high  # how large it is depends on what else the machine does
