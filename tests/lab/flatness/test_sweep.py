"""`sampa flatness` on tiny runs: its numbers, resuming, two processes, models of one's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sampa import flatness
from sampa.lab.cli import main
from sampa.lab.flatness.settings import FLATNESS_FILE, SweepSettings
from sampa.lab.flatness.subjects import of_runs
from sampa.lab.flatness.sweep import jobs_of
from sampa.lab.models.small import Conv3
from sampa.lab.training.flatness import plain_batches
from sampa.lab.training.saved import load_saved
from tests.lab.training.runs import carry_out, tiny_run

SMALL = ["--batches", "2", "--batch-size", "16", "--points", "3", "--products", "3"]
NUMBERS = ("accuracy", "sharpness", "adaptive-linf-logits")
FEW = ["--measures", *NUMBERS, "line", "plane", "density", "path"]


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
    values = found["values"]["sharpness"]["tiny sam seed 1"]
    assert len(values) == 2
    assert values == pytest.approx(by_hand(runs / "sam" / "seed-1"), rel=1e-12)
    assert found["gradients"]["sharpness"] == pytest.approx(5 + 1 / 3)
    assert page.read_text().count('<svg class="heat"') == 2  # a plane of each method
    assert json.loads((tmp_path / FLATNESS_FILE).read_text()) == found  # for a report
    assert_a_line_goes_through_its_models(found["values"]["path"], runs)

    before = contents(tmp_path)
    assert len(before) == 4 * 4 + 2 * 2 + 1  # of each model, of each method, of one pair
    gone = sorted(before)[3]
    (tmp_path / "jobs" / gone).unlink()
    times = {f: (tmp_path / "jobs" / f).stat().st_mtime_ns for f in before if f != gone}
    assert main(command) == 0
    assert contents(tmp_path) == before  # the same bits
    assert times == {f: (tmp_path / "jobs" / f).stat().st_mtime_ns for f in times}  # not repeated


def assert_a_line_goes_through_its_models(paths: dict[str, Any], runs: Path) -> None:
    """At its ends the loss is that of the two models, their BatchNorm included."""
    ((name, path),) = paths.items()
    assert name == "tiny sgd seed 0 → tiny sam seed 0"
    assert path["marks"] == {"sgd": [0.0], "sam": [1.0]}
    for method, (at,) in path["marks"].items():
        saved = load_saved(runs / method / "seed-0")
        saved.model.eval()
        losses = []
        for batch in plain_batches(saved.task, 16, 2):
            value = saved.task.loss(saved.model, batch).value
            assert value is not None
            losses.append(value.item())
        assert path["loss"][path["x"].index(at)] == pytest.approx(sum(losses) / 2, rel=1e-6)
    assert path["barrier"] >= 0


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
def test_two_processes_that_were_killed_find_the_bits_of_one(runs: Path, tmp_path: Path) -> None:
    """SIGKILL in the middle of a sweep: the same command goes on, and nothing is done twice."""

    def started(devices: int, out: Path) -> subprocess.Popen[bytes]:
        command = [*FEW, *SMALL, "--out", str(out), "--devices", str(devices)]
        return subprocess.Popen(
            [sys.executable, "-m", "sampa", "flatness", str(runs), *command],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
        )

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert started(1, whole).wait(240) == 0
    killed = started(2, cut)
    wait_until(lambda: len(list(cut.glob("jobs/*.json"))) >= 2)
    killed.send_signal(signal.SIGKILL)
    killed.wait(60)
    wait_until(lambda: not processes_with(str(cut)))  # those that it started end with it
    done = {file: file.stat().st_mtime_ns for file in cut.glob("jobs/*.json")}
    assert 2 <= len(done) < len(contents(whole))
    assert not (cut / FLATNESS_FILE).exists()
    assert started(2, cut).wait(240) == 0
    assert contents(cut) == contents(whole)
    assert {file: file.stat().st_mtime_ns for file in done} == done
    one, two = (json.loads((out / FLATNESS_FILE).read_text()) for out in (whole, cut))
    assert one["values"] == two["values"]


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def processes_with(word: str) -> list[str]:
    """The processes whose command line has a word."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word in file.read_text():
                found.append(file.parent.name)
        except OSError:  # it has ended
            continue
    return found


def test_variants_of_a_method_are_told_apart(runs: Path, tmp_path: Path) -> None:
    """SGD with more epochs stands beside SGD, and what was measured of it is not repeated."""
    carry_out(tiny_run(method="sgd", seed=0, base_epochs=3), tmp_path / "longer")
    folders = [runs / "sgd" / "seed-0", runs / "sam" / "seed-0", tmp_path / "longer"]
    subjects = of_runs(folders, None)
    assert [s.method for s in subjects] == ["sgd, epochs=2", "sgd, epochs=3", "sam"]
    before = jobs_of(of_runs(folders[:2], None), ["loss"], SweepSettings(), tmp_path)
    assert {job.key for job in before} < {
        job.key for job in jobs_of(subjects, ["loss"], SweepSettings(), tmp_path)
    }


def test_lines_and_planes_are_between_methods_or_between_seeds(runs: Path, tmp_path: Path) -> None:
    both = ["path", "triangle"]
    methods = jobs_of(
        of_runs([f.parent for f in runs.rglob("result.json")], None),
        both,
        SweepSettings(),
        tmp_path,
    )
    assert [(job.measure, job.labels) for job in methods] == [("path", ("sgd", "sam"))]
    seeds = jobs_of(
        of_runs([runs / "sam" / f"seed-{i}" for i in (0, 1)], None), both, SweepSettings(), tmp_path
    )
    assert [(job.measure, job.labels) for job in seeds] == [("path", ("seed 0", "seed 1"))]


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
    assert main(["flatness", str(tmp_path)]) == 2
    assert "a folder with finished runs" in capsys.readouterr().err
