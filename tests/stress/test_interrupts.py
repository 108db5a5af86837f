"""A short edition of the interrupts.

In a process of its own, without coverage: a Ctrl-C inside of coverage's tracer leaves its lock
taken, and this process would wait for it forever.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unmeasured import unmeasured

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def test_a_step_that_is_interrupted_at_random_instants_is_made_as_a_whole_or_not_at_all() -> None:
    command = [sys.executable, "-m", "tools.stress.interrupts", "--trials", "5"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=unmeasured(),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["left_behind"] == 0
    assert summary["interrupts"] == 500
    assert summary["inside_a_step"] >= 100
