"""A short edition of the fuzz trials, and a check that they would notice."""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sampa.lab.files import read_file
from sampa.lab.training import checkpoint
from tests.lab.oddities import KINDS, odd_file
from tests.marks import rest_is_slow
from tests.ranks import run_ranks
from tools.stress.fuzz import fuzz, trial
from tools.stress.mutations import Payload
from tools.stress.targets import Target, checkpoints, open_targets, sharded_checkpoints


@pytest.mark.slow
@pytest.mark.dist
def test_no_damaged_file_is_read_run_or_a_riddle() -> None:
    # In a process of its own: audit hooks stay for good.
    (summary,) = run_ranks(1, fuzz, 1800, 1, timeout=600)
    assert summary["trials"] == 1800
    assert summary["outcomes"]["sharded checkpoint"]["refused"] > 150
    assert summary["failures"] == 0
    assert summary["run_or_written_elsewhere"] == 0


@pytest.mark.slow
@pytest.mark.dist
def test_what_stands_in_place_of_a_file_is_refused_at_once() -> None:
    """In a process of its own: one that hangs must not take the others along."""
    (outcomes,) = run_ranks(1, odd_outcomes, timeout=240)
    assert set(outcomes.values()) <= {"refused", "read as before"}, outcomes
    assert outcomes["sharded checkpoint: model-2-of-2.safetensors as a pipe"] == "refused"
    assert len(outcomes) > 120


def odd_outcomes() -> dict[str, str]:
    """What each reader makes of each kind of thing in place of each of its files."""
    outcomes: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, target in open_targets(Path(folder)).items():
            for file, kind in itertools.product(target.files, KINDS):

                def damage(rng: random.Random, file: Path = file, kind: str = kind) -> bool:
                    odd_file(file, kind)
                    return True

                target.damage = damage
                outcomes[f"{name}: {file.name} as a {kind}"] = trial(target, random.Random(0))
    return outcomes


@pytest.mark.dist
@pytest.mark.parametrize("make", rest_is_slow([checkpoints, sharded_checkpoints], checkpoints))
def test_a_reader_that_skips_its_hashes_is_found_out(
    make: Callable[[Path], Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = make(tmp_path)
    monkeypatch.setattr(checkpoint, "read_checked", lambda file, _: read_file(file, 10**6))
    outcomes = {trial(target, random.Random(n)).split(":")[0] for n in range(100)}
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
