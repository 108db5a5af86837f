"""Step times against an earlier commit: real processes of both, in turns."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tools.step_times import HERE, compare

pytestmark = [pytest.mark.slow, pytest.mark.dist]


@pytest.mark.parametrize(("method", "processes"), [("SAMPa", 2)])
def test_source_that_sleeps_in_each_step_is_slower(
    tmp_path: Path, method: str, processes: int
) -> None:
    """The other source is this one, and a module of its name that waits before it steps."""
    package = tmp_path / "sampa"
    package.mkdir()
    (package / "__init__.py").write_text(SLOW.format(source=str(HERE / "src" / "sampa")))
    options = argparse.Namespace(starts=1, turns=2, steps=1, batch=4)
    found = compare((tmp_path, HERE / "src"), method, processes, options)
    assert found.ratio > 1.3
    assert found.now - found.before > 1e3 * SLEEP / 2


SLEEP = 1.5  # a busy machine takes half a second for a step
SLOW = f"""
import time
__path__ = [{{source!r}}]
exec(open(__path__[0] + "/__init__.py").read())
def slow(factory):
    def made(*args, **options):
        optimizer = factory(*args, **options)
        step = optimizer.step
        optimizer.step = lambda *a: (time.sleep({SLEEP}), step(*a))
        return optimizer
    return made
SAM, SAMPa = slow(__getattr__("SAM")), slow(__getattr__("SAMPa"))
"""
