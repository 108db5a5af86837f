"""The paper's scale on a machine that cannot carry it out."""

from __future__ import annotations

from pathlib import Path

import pytest

from sampa.lab.cli import main
from sampa.lab.reproduce.catalog import EXPERIMENTS
from sampa.lab.reproduce.preflight import gpu_hours, gradients, operations
from sampa.lab.results.paper import published
from sampa.lab.training.recipes import find_recipe


def test_what_is_missing_is_told_before_the_first_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    monkeypatch.delenv("SAMPA_DATA_DIR", raising=False)
    out, data = tmp_path / "out", tmp_path / "data"
    data.mkdir()
    command = ["reproduce", "fig-lambda", "--scale", "paper", "--devices", "2", "--seeds", "1"]
    assert main([*command, "--out", str(out), "--data-dir", str(data)]) == 1
    first, *listed, last = capsys.readouterr().err.splitlines()
    assert first == "sampa reproduce: the paper's scale needs what is missing here:"
    assert listed[0].startswith("  - 2 GPUs: torch ")
    assert listed[1:] == ["  - CIFAR-10 (train) was not found"]
    assert "GPU hours (estimated" in last
    assert not out.exists()


def test_what_needs_no_gpu_is_not_held_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "fig-toy", "--scale", "paper", "--seeds", "1"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""


def test_the_hours_of_resnet56_are_the_papers() -> None:
    """An epoch of SAM takes as long as it says; the recipe holds back a tenth of the data."""
    run = find_recipe("cifar10-resnet56").changed(method="sam")
    seconds = published("tab-efficiency").values["Time/Epoch (s)"]["SAM"].mean
    assert gpu_hours([run]) == pytest.approx(0.9 * run.epochs * seconds / 3600, rel=1e-9)


def test_operations_and_gradients_are_counted() -> None:
    run = find_recipe("cifar10-resnet56")
    assert operations(run) == pytest.approx(2 * 126.6e6, rel=0.02)  # multiply-adds as published
    counts = {name: gradients(run.changed(method=name)) for name in ("sgd", "sam", "sampa-0.3")}
    assert counts == {"sgd": 1, "sam": 2, "sampa-0.3": 2}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_an_estimate(name: str) -> None:
    runs = EXPERIMENTS[name].runs("paper")
    assert gpu_hours(runs) > 0 or not runs
