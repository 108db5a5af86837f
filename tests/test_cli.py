"""The command line, run as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import sampa
from sampa.cli import main
from sampa.names import find_method


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sampa", *args], capture_output=True, text=True, check=False
    )


def test_methods_writes_every_method_with_its_counts(tmp_path: Path) -> None:
    file = tmp_path / "methods.json"
    assert main(["methods", "--json", str(file)]) == 0
    rows = {row["name"]: row for row in json.loads(file.read_text())}
    assert list(rows) == list(sampa.METHODS)
    counts = {name: (row["probes"], row["rounds"]) for name, row in rows.items()}
    assert counts["base"] == (1, 1)
    assert counts["sam"] == (2, 2)
    assert counts["sampa"] == (2, 1)
    assert counts["optgd"] == counts["randsam"] == counts["momentum-sam"] == (1, 1)
    assert counts["looksam"] == (1.2, 1.2)  # 1 + 1/k
    assert counts["multi-step-sam"] == (4, 4)  # K + 1
    assert counts["async-sam"] == (2, 1)
    assert rows["sampa"]["hyperparameters"]["lam"] == 0.2


def test_methods_prints_a_table_that_names_each_method() -> None:
    result = run("methods")
    assert result.returncode == 0
    assert all(name in result.stdout for name in sampa.METHODS)


def test_help_of_a_command_shows_examples() -> None:
    result = run("methods", "--help")
    assert result.returncode == 0
    assert "sampa methods --json methods.json" in result.stdout


def test_overview_names_the_commands() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert "methods" in result.stdout


def test_unknown_command_is_refused_with_the_nearest_name() -> None:
    result = run("mehtods")
    assert result.returncode == 2
    assert "did you mean 'methods'?" in result.stderr


def test_file_that_cannot_be_written_is_an_error_without_a_traceback(tmp_path: Path) -> None:
    result = run("methods", "--json", str(tmp_path / "missing" / "methods.json"))
    assert result.returncode == 1
    assert "No such file or directory" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("name", "lam"), [("sampa", 0.2), ("sampa-0", 0.0), ("sampa-0.1", 0.1), ("sampa-1", 1.0)]
)
def test_sampa_names_carry_their_lambda(name: str, lam: float) -> None:
    import torch

    base = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    assert find_method(name)(base).method.lam == lam


def test_unknown_method_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(ValueError, match="did you mean 'looksam'"):
        find_method("loksam")
