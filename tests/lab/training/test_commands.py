"""`sampa train`, `compare` and `eval`, with real runs in real folders."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sampa.lab.cli import main
from sampa.lab.commands.train import default_folder
from sampa.lab.data.batches import ImageBatches
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.run import DataSpec
from tests.lab.training.runs import carry_out, tiny_run

QUICK = ["--epochs", "1", "--threads", "1"]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands set the number of threads, here of the tests' own process."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


# ---- train -----------------------------------------------------------------------------------


def test_train_writes_plain_lines_where_there_is_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "digits-cpu", *QUICK, "--out", str(tmp_path / "run")]) == 0
    first, second = capsys.readouterr().out.splitlines()
    number = r"\d+\.\d+"
    assert re.fullmatch(
        rf"epoch 1/1  loss {number}  validation accuracy {number}  lr 0\.0500  {number} s  "
        rf"data {number} %  left \d:\d\d:\d\d",
        first,
    )
    assert second.startswith("digits-cpu sampa seed 0: test accuracy ")


def test_train_has_a_folder_of_its_own_for_each_recipe_method_and_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["train", "digits-cpu", "--method", "sam", "--seed", "3", "--limit-steps", "1"])
    assert (tmp_path / "runs" / "digits-cpu" / "sam" / "seed-3" / "run.json").exists()


def test_the_options_of_train_are_in_the_record(tmp_path: Path) -> None:
    options = "--method sampa --rho 0.3 --lam 0.4 --lr 0.01 --batch-size 32 --seed 5 --amp bf16"
    out = ["--limit-steps", "1", "--out", str(tmp_path)]
    assert main(["train", "digits-cpu", *options.split(), *QUICK, *out]) == 0
    run = read(tmp_path / "run.json")["run"]
    found = [run[k] for k in ("method", "rho", "lam", "batch_size", "seed", "amp", "epochs")]
    assert found == ["sampa", 0.3, 0.4, 32, 5, "bf16", 1]
    assert run["base"]["lr"] == 0.01
    assert read(tmp_path / "run.json")["conditions"]["threads"] == 1


def test_epochs_on_the_command_line_hold_for_the_base_optimizer_too(tmp_path: Path) -> None:
    assert main(["train", "digits-cpu", "--method", "sgd", *QUICK, "--out", str(tmp_path)]) == 0
    assert len(RunFolder(tmp_path).metrics()) == 1


def test_a_finished_run_is_reported_again_and_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "digits-cpu", *QUICK, "--out", str(tmp_path)]
    main(command)
    *_, summary = capsys.readouterr().out.splitlines()
    assert main([*command, "--resume"]) == 0
    assert capsys.readouterr().out.splitlines() == [summary]


def test_a_run_limited_to_a_few_steps_does_not_claim_a_best_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["train", "digits-cpu", "--limit-steps", "2", "--out", str(tmp_path)])
    assert "(last)" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["../../x", "/x", "a/b", "..", "."])
def test_a_run_name_that_leaves_the_folder_of_runs_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="the name of a run must be the name of one folder"):
        default_folder(tiny_run(name=name))


def test_a_recipe_that_is_a_path_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "../../x", *QUICK]) == 2
    assert "recipe must be a known name, got '../../x'" in capsys.readouterr().err


def test_a_failed_step_is_told_by_rank_batch_and_cause_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a mistake in the data")

    monkeypatch.setattr(ImageBatches, "batch", broken)
    assert main(["train", "digits-cpu", *QUICK, "--out", str(tmp_path)]) == 1
    first, *rest = capsys.readouterr().err.splitlines()
    assert first == "sampa train: rank 0, batch 0: KeyError: 'a mistake in the data'"
    assert rest[0] == "Traceback (most recent call last):"


# ---- eval ------------------------------------------------------------------------------------


@pytest.mark.parametrize("select", ["best", "last"])
def test_eval_gives_the_recorded_number(
    select: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = carry_out(tiny_run(select=select, epochs=3), tmp_path).test
    assert main(["eval", str(tmp_path)]) == 0
    shown = ", ".join(f"{name} {value:.2f}" for name, value in recorded.items())
    assert capsys.readouterr().out.strip().endswith(f": test {shown}")


def test_eval_judges_validation_images_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = carry_out(tiny_run(), tmp_path).best_validation
    assert main(["eval", str(tmp_path), "--split", "validation"]) == 0
    assert f"validation accuracy {best:.2f}" in capsys.readouterr().out


def test_eval_says_if_there_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    carry_out(tiny_run(), tmp_path, limit_steps=1)
    assert main(["eval", str(tmp_path)]) == 1
    assert "has no best checkpoint that is whole" in capsys.readouterr().err


def test_eval_without_validation_images_judges_the_test_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = DataSpec("digits", subset=120, validation=0.0)
    accuracy = carry_out(tiny_run(data=data, select="last"), tmp_path).test["accuracy"]
    assert main(["eval", str(tmp_path), "--split", "validation"]) == 0
    assert f"accuracy {accuracy:.2f}" in capsys.readouterr().out


# ---- compare ---------------------------------------------------------------------------------


@pytest.mark.dist
def test_compare_runs_a_grid_once_and_prints_mean_and_deviation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed_0 = str(tmp_path / "sgd" / "seed-0")
    assert main(["train", "digits-cpu", "--method", "sgd", *QUICK, "--out", seed_0]) == 0
    capsys.readouterr()
    command = ["compare", "digits-cpu", "--methods", "sgd", "--seeds", "2", "--jobs", "2"]
    command += ["--out", str(tmp_path), "--extra=--epochs 1"]
    assert main(command) == 0
    first = capsys.readouterr().out
    assert "sgd seed 0: done before" in first.splitlines()
    assert re.search(r"sgd +2 +\d+\.\d\d ± \d+\.\d\d", first)
    begun = (tmp_path / "sgd" / "seed-1" / "log.txt").stat().st_mtime_ns
    assert main(command) == 0
    second = capsys.readouterr().out
    assert [line for line in second.splitlines() if "seed" in line] == [
        "sgd seed 0: done before",
        "sgd seed 1: done before",
    ]
    assert (tmp_path / "sgd" / "seed-1" / "log.txt").stat().st_mtime_ns == begun


@pytest.mark.dist
def test_compare_tells_a_failure_by_its_exit_code_and_names_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", "cifar10-cpu", "--methods", "sgd", "--seeds", "1"]
    (tmp_path / "none").mkdir()
    assert main([*command, "--out", str(tmp_path), "--data-dir", str(tmp_path / "none")]) == 1
    log = tmp_path / "sgd" / "seed-0" / "log.txt"
    assert f"failed (1), see {log}" in capsys.readouterr().out
    assert "CIFAR-10 (train) was not found" in log.read_text()


def test_compare_refuses_results_of_other_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["train", "digits-cpu", *QUICK, "--out", str(tmp_path / "sampa" / "seed-0")])
    command = ["compare", "digits-cpu", "--methods", "sampa", "--seeds", "1"]
    assert main([*command, "--out", str(tmp_path), "--extra=--epochs 2"]) == 1
    assert "epochs must be as in" in capsys.readouterr().err


@pytest.mark.dist
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_compare_that_is_stopped_stops_its_runs_after_they_saved(
    number: int, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "sampa", "compare", "digits-cpu", "--methods", "sam", "sampa"]
    process = subprocess.Popen(
        [*command, "--seeds", "1", "--jobs", "2", "--out", str(tmp_path), "--extra=--epochs 500"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    folders = [tmp_path / method / "seed-0" for method in ("sam", "sampa")]
    while not all((folder / "times.jsonl").exists() for folder in folders):  # after an epoch
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    text, told = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert (text, told) == ("", "sampa compare: stopped; the same command goes on\n")
    assert all("Go on with" in (folder / "log.txt").read_text() for folder in folders)
