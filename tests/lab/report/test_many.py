"""A report of hundreds of runs with their flatness: seconds, without torch and matplotlib."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sampa.lab.flatness.saved import write_found
from sampa.lab.flatness.settings import FLATNESS_FILE
from tests.lab.flatness.sweeps import found
from tests.lab.report.folders import MANY, write_many
from tests.unmeasured import unmeasured

pytestmark = pytest.mark.slow

MOST_SECONDS = 3.0  # of processor time
PROGRAM = """
import os, sys
from sampa.lab.cli import main
code = main(sys.argv[1:])
times = os.times()
slow = [name for name in ("torch", "matplotlib") if name in sys.modules]
print(times.user + times.system, *slow, file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_many(tmp_path_factory.mktemp("many") / "runs")
    write_found(found(), root / "flatness" / FLATNESS_FILE)
    return root


def report(runs: Path, out: Path) -> subprocess.CompletedProcess[str]:
    # Measuring coverage would double the time that is measured here.
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, "report", str(runs), "-o", str(out)],
        env=unmeasured(),
        capture_output=True,
        text=True,
        check=True,
    )


def test_a_report_takes_seconds_and_the_same_files_give_the_same_page(
    runs: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "1.html", tmp_path / "2.html"
    assert f"{MANY} runs" in report(runs, first).stdout
    taken: list[float] = []
    for _ in range(3):  # on a busy machine a processor is shared, and its time longer
        seconds, *slow = report(runs, second).stderr.split()
        assert slow == []  # neither torch nor matplotlib is waited for
        taken.append(float(seconds))
    assert min(taken) < MOST_SECONDS
    assert second.read_bytes() == first.read_bytes()
    assert "Does it go with test accuracy?" in first.read_text(encoding="utf-8")
