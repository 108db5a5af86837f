"""A record is of source that a commit holds, unless its maker says otherwise: in a real clone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sampa

SOURCE = Path(sampa.__file__).parent
RESULTS = Path(__file__).resolve().parents[2] / "results"
COMMAND = ("reproduce", "theory", "--scale", "smoke", "--out", "runs", "--record", "record")


def git(clone: Path, *arguments: str) -> None:
    who = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    subprocess.run(["git", *who, *arguments], cwd=clone, check=True, capture_output=True)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of its own, with one commit."""
    path = tmp_path_factory.mktemp("clone")
    leave_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCE, path / "src" / "sampa", ignore=leave_out)
    (path / ".gitignore").write_text("__pycache__\n")
    git(path, "init")
    git(path, "add", ".")
    git(path, "commit", "-m", "all")
    return path


def reproduce(clone: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(clone / "src")}
    command = [sys.executable, "-m", "sampa", *COMMAND, *options]
    return subprocess.run(command, cwd=clone, env=environment, text=True, capture_output=True)


def recorded_commit(clone: Path) -> str:
    return json.loads((clone / "record" / "results.json").read_text())["conditions"]["commit"]


@pytest.mark.slow
def test_a_record_of_changed_source_is_refused_unless_told(clone: Path) -> None:
    done = reproduce(clone)
    assert done.returncode == 0, done.stderr
    assert not recorded_commit(clone).endswith("-dirty")  # what it wrote itself does not count
    shutil.rmtree(clone / "record")
    (clone / "src" / "sampa" / "new.py").touch()
    done = reproduce(clone)
    assert done.returncode == 1
    assert "a record must be of source that is committed, got " in done.stderr
    assert not (clone / "record").exists()
    done = reproduce(clone, "--allow-dirty")
    assert done.returncode == 0, done.stderr
    assert recorded_commit(clone).endswith("-dirty")


def asked(*question: str) -> str:
    """What git says of the repository; nothing where there is none."""
    done = subprocess.run(
        ["git", *question], cwd=RESULTS.parent, text=True, capture_output=True, check=False
    )
    return done.stdout


def history() -> set[str]:
    """The commits up to this one, abbreviated as records have them."""
    if asked("rev-parse", "--is-shallow-repository") != "false\n":
        pytest.skip("needs a clone with all of the history")
    return {name[:n] for name in asked("rev-list", "HEAD").split() for n in (7, 12)}


def test_every_record_is_of_a_commit_in_the_history() -> None:
    known = history()
    records = [path for kind in ("*.json", "*.jsonl") for path in RESULTS.rglob(kind)]
    lost = {
        (path.name, commit)
        for path in records
        for commit in re.findall(r'"commit": "([^"]*)"', path.read_text(encoding="utf-8"))
        if commit not in known
    }
    assert records
    assert lost == set()
