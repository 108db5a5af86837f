"""`--flatness-every`: comparable numbers while a run trains, which change nothing of it."""

from __future__ import annotations

from pathlib import Path

from sampa.lab.training.folder import RunFolder
from tests.lab.training.runs import carry_out, tiny_run


def test_flatness_is_measured_every_n_epochs_and_training_is_untouched(tmp_path: Path) -> None:
    run = tiny_run(epochs=3)
    plain = carry_out(run, tmp_path / "plain")
    watched = carry_out(run, tmp_path / "watched", flatness_every=2)
    assert plain.test == watched.test
    lines = RunFolder(tmp_path / "watched").metrics()
    assert ["flatness_sharpness" in line for line in lines] == [False, True, False]
    assert lines[1]["flatness_sharpness"] > 0
    assert lines[1]["flatness_eigenvalue"] > 0
    without = [{k: v for k, v in line.items() if "flatness" not in k} for line in lines]
    assert without == RunFolder(tmp_path / "plain").metrics()
