"""A short edition of the fuzz trials, and a check that they would notice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sampa.lab.training import checkpoint
from tests.ranks import run_ranks
from tools.stress.fuzz import fuzz, trial
from tools.stress.mutations import Payload
from tools.stress.targets import checkpoints


@pytest.mark.slow
@pytest.mark.dist
def test_no_damaged_file_is_read_run_or_a_riddle() -> None:
    (summary,) = run_ranks(1, fuzz, 1500, 1)  # in a process of its own: audit hooks stay for good
    assert summary["trials"] == 1500
    assert summary["failures"] == 0
    assert summary["run_or_written_elsewhere"] == 0


def test_a_reader_that_skips_its_hashes_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = checkpoints(tmp_path)
    monkeypatch.setattr(checkpoint, "_read_checked", lambda file, expected: file.read_bytes())
    outcomes = {trial(target, random.Random(n)) for n in range(100)}
    assert "READ SILENTLY" in outcomes


@pytest.mark.dist
def test_a_reader_that_unpickles_is_found_out() -> None:
    assert run_ranks(1, unpickled)[0] == ["pickle.find_class"]


def unpickled() -> list[str]:
    import pickle
    import tempfile

    from tools.stress.guard import Guard

    guard = Guard()
    content = pickle.dumps(Payload)
    with tempfile.TemporaryDirectory() as folder, guard.allowing(Path(folder)):
        pickle.loads(content)
    return [seen.split()[0] for seen in guard.seen]
