"""What `make` installs, and when: with a python in .venv that only writes down what it is asked."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = """#!/bin/sh
echo "$@" $PYTHONDONTWRITEBYTECODE >> "$CALLS"
case "$*" in *"$FAILS"*) exit 1;; esac
case "$*" in *" pip "*) echo "Collecting a"; echo "  Downloading a-1.0.whl.metadata (1 kB)"
echo "  Downloading a-1.0-py3-none-any.whl (12 kB)"; echo "Installing collected packages: a";; esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    return tmp_path


def make(
    project: Path, target: str, fails: str = "nothing at all", **environment: str
) -> tuple[int, str, list[str]]:
    """Exit code, output, and what python was asked."""
    calls = project / "calls"
    calls.write_text("")
    own = {"PATH": "/usr/bin:/bin:/usr/local/bin", "CALLS": str(calls), "FAILS": fails}
    done = subprocess.run(
        ["make", target],
        cwd=project,
        env=own | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, calls.read_text().splitlines()


def test_the_demo_installs_what_it_needs_and_says_what(project: Path) -> None:
    code, shown, calls = make(project, "demo")
    assert code == 0
    assert [call.split()[-1] for call in calls] == [
        next(p for p in (ROOT / "constraints.txt").read_text().split() if p.startswith("torch==")),
        ".[train,report]",
        "demo",
    ]
    assert shown.count("  a-1.0-py3-none-any.whl (12 kB)\n") == 2
    assert "metadata" not in shown


def test_tests_after_the_demo_install_the_rest_once(project: Path) -> None:
    make(project, "demo")
    _, _, calls = make(project, "lint")
    assert sum(".[train,nlp,report,dev]" in call for call in calls) == 1
    for target in ("lint", "demo"):  # now all is there
        _, _, calls = make(project, target)
        assert not any(" pip " in call for call in calls)


def test_the_demo_needs_nothing_more_where_all_is_installed(project: Path) -> None:
    make(project, "lint")
    (project / ".venv" / ".demo").unlink()
    code, _, calls = make(project, "demo")
    assert code == 0
    assert calls == ["-m sampa demo"]


def test_an_install_that_fails_is_no_demo(project: Path) -> None:
    code, _, calls = make(project, "demo", fails="train,report")
    assert code != 0
    assert not any("sampa demo" in call for call in calls)
    assert not (project / ".venv" / ".demo").exists()


def test_what_is_compiled_is_kept_for_the_processes_that_tests_start(project: Path) -> None:
    make(project, "setup")
    _, _, calls = make(project, "quick", PYTHONDONTWRITEBYTECODE="none-is-kept")
    (call,) = calls
    assert call.startswith("-m pytest")
    assert "none-is-kept" not in call
