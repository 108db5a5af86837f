"""`sampa flatness` on tiny runs: its numbers, resuming, two processes, models of one's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from sampa import flatness
from sampa.lab.cli import main
from sampa.lab.models.small import Conv3
from sampa.lab.training.saved import load_saved
from tests.lab.training.runs import carry_out, tiny_run

SMALL = ["--batches", "2", "--batch-size", "16", "--points", "3", "--products", "3"]
FEW = ["--measures", "accuracy", "sharpness", "adaptive-linf-logits", "line", "plane", "density"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for method in ("sgd", "sam"):
        for seed in (0, 1):
            run = tiny_run(method=method, seed=seed)
            carry_out(run, root / method / f"seed-{seed}")
    return root


def contents(out: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (out / "jobs").iterdir()}


def test_numbers_are_those_of_the_library_and_a_sweep_goes_on_where_it_stopped(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["flatness", str(runs), *FEW, *SMALL, "--out", str(tmp_path)]
    written = tmp_path / "all.json"
    monkeypatch.setattr(sys, "argv", ["sampa", *command])
    page = tmp_path / "page.html"
    assert main([*command, "--json", str(written), "--html", str(page)]) == 0
    found = json.loads(written.read_text())
    saved = load_saved(runs / "sam" / "seed-1")
    batches = [saved.task.batches]
    assert batches
    values = found["values"]["sharpness"]["tiny sam seed 1"]
    assert len(values) == 2
    assert values == pytest.approx(by_hand(runs / "sam" / "seed-1"), rel=1e-12)
    assert found["gradients"]["sharpness"] == pytest.approx(5 + 1 / 3)
    assert page.read_text().count('<svg class="heat"') == 2  # a plane of each method

    before = contents(tmp_path)
    assert len(before) == 4 * 6
    gone = sorted(before)[3]
    (tmp_path / "jobs" / gone).unlink()
    times = {f: (tmp_path / "jobs" / f).stat().st_mtime_ns for f in before if f != gone}
    assert main(command) == 0
    assert contents(tmp_path) == before  # the same bits
    assert times == {f: (tmp_path / "jobs" / f).stat().st_mtime_ns for f in times}  # not repeated


def by_hand(folder: Path) -> list[float]:
    """Sharpness of each batch, from the first training images as they are."""
    saved = load_saved(folder)
    batches: Any = saved.task.batches
    order = [batches.plan.whole(0, n) for n in range(2)]
    samples = torch.cat([torch.from_numpy(o) for o in order])[:32].numpy()
    found = []
    for n in range(2):
        chosen = samples[16 * n : 16 * (n + 1)]
        pixels = torch.from_numpy(batches.data.pixels(chosen)).float()
        mean, std = (
            255 * torch.tensor(t).view(1, -1, 1, 1) for t in (batches.data.mean, batches.data.std)
        )
        batch = (
            (pixels - mean) / std,
            torch.from_numpy(batches.data.labels[chosen]),
            torch.from_numpy(chosen),
        )
        found.append(
            flatness.sharpness(
                saved.model, lambda b: saved.task.loss(saved.model, b), [batch], rho=0.1, steps=5
            ).value
        )
    return found


@pytest.mark.slow
def test_two_processes_find_the_bits_of_one(runs: Path, tmp_path: Path) -> None:
    for devices in ("1", "2"):
        command = [*FEW, *SMALL, "--out", str(tmp_path / devices), "--devices", devices]
        subprocess.run(
            [sys.executable, "-m", "sampa", "flatness", str(runs), *command],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
            capture_output=True,
            timeout=240,
        )
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_a_model_of_ones_own_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    torch.save(Conv3(in_channels=1, width=32).state_dict(), tmp_path / "net.pt")
    command = [
        *("flatness", "--model", "sampa.lab.models.small:Conv3"),
        *("--weights", str(tmp_path / "net.pt"), "--recipe", "digits-cpu"),
        *("--measures", "sharpness", *SMALL, "--out", str(tmp_path / "out")),
    ]
    monkeypatch.setattr(sys, "argv", ["sampa", *command])
    assert main(command) == 0
    assert "Conv3 net" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([], "name folders of finished runs"),
        (["--model", "resnet20"], "--model and --weights must be as many, got 1 and 0"),
        (["--measures", "flat"], "a measure must be a known name, got 'flat'"),
    ],
)
def test_wrong_usage_is_named(
    command: list[str], message: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [str(runs)] if "--measures" in command else []
    assert main(["flatness", *where, *command]) == 2
    assert message in capsys.readouterr().err


def test_an_unfinished_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flatness", str(tmp_path)]) == 1
    assert "a folder with finished runs" in capsys.readouterr().err
