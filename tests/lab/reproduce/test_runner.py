"""From planned runs to results through real processes, a few runs in each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from sampa.lab.reproduce import batch, runner
from sampa.lab.reproduce.plan import Unfinished
from sampa.lab.reproduce.request import Request
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.run import DataSpec, Run
from tests.lab.training.runs import carry_out, tiny_run


def planned(out: Path, *methods: str, seed: int = 0) -> dict[Path, Run]:
    return {out / f"{m}-{seed}": tiny_run(method=m, seed=seed, epochs=1) for m in methods}


@dataclass(frozen=True)
class Experiment:
    """Runs that two processes at once were to do, one of which cannot be done."""

    out: Path
    request: Request
    good: dict[Path, Run]
    bad: tuple[Path, Run]
    ended: Unfinished


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    out = tmp_path_factory.mktemp("experiment")
    bad = out / "bad", tiny_run(data=DataSpec("cifar10"))
    good = planned(out, "sgd", "sampa") | planned(out, "sgd", seed=1)
    request = Request("cpu", out, jobs=2, data_dir=out)
    with pytest.raises(Unfinished) as ended:
        runner.train_all(dict([bad]) | good, request, "tiny")
    return Experiment(out, request, good, bad, ended.value)


@pytest.mark.dist
def test_two_processes_at_once_run_all_runs(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, alone = experiment.good, experiment.out / "alone"
    expected = {folder: carry_out(run, alone / folder.name).test for folder, run in runs.items()}
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("it started a process"))
    results = runner.train_all(runs, experiment.request, "tiny")
    assert {folder: result.test for folder, result in results.items()} == expected
    for folder in runs:
        saved = [path.name for path in (folder / "checkpoints").iterdir()]
        assert saved == ["best-000000003"]  # for sampa eval; what only an unfinished run needs went


@pytest.mark.dist
def test_a_run_that_fails_makes_the_experiment_unfinished(experiment: Experiment) -> None:
    """It is told with its log, and the next run of its process is done all the same."""
    assert experiment.ended.code == 1
    told = str(experiment.ended)
    assert told.startswith("1 of 2 jobs failed, first tiny seed 0 (3 runs)")
    for folder, run in experiment.good.items():
        assert runner.finished(folder, run).test
    folder, run = experiment.bad
    assert RunFolder(folder).result_of(run) is None
    assert "Traceback" in (folder / "log.txt").read_text()


def test_neighbors_with_the_same_seed_share_a_process(tmp_path: Path) -> None:
    methods = ("sgd", "sam", "sampa", "asam", "vasso")
    runs = planned(tmp_path, *methods) | planned(tmp_path, "sgd", seed=1)
    found = list(runner._batches(runs, Request("cpu", tmp_path), 1))
    assert [len(b.runs) for b in found] == [runner.RUNS_A_PROCESS, 1, 1]
    assert [folder for b in found for folder in b.runs] == list(runs)


def test_a_run_on_two_devices_has_a_launcher_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    request = Request("paper", tmp_path, devices=2, data_dir=tmp_path)
    first, second = runner._batches(planned(tmp_path, "sam", "sampa"), request, 2)
    assert len(first.runs) == len(second.runs) == 1
    folder = str(tmp_path / "sampa-0")
    assert second.arguments() == [
        *("-m", "sampa", "train", f"{folder}/asked.json", "--out", folder, "--resume"),
        *("--devices", "2", "--threads", "2", "--data-dir", str(tmp_path)),
    ]


def test_a_stopped_process_keeps_its_other_runs_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise batch.Interrupted(15, 3, 3)

    monkeypatch.setattr(batch, "train", stop)
    runs = planned(tmp_path, "sgd", "sam")
    arguments = batch.job_of("tiny", runs, Request("cpu", tmp_path), 1).arguments()
    assert batch.main(arguments[2:]) == 143


def test_a_test_of_seconds_shows_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sampa.lab.progress.EVERY", 0.0)
    runner.train_all(planned(tmp_path, "sgd", "sam"), Request("smoke", tmp_path), "tiny")
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("runs: 1 of 2, about ")
    assert second.startswith("runs: 2 of 2, about ")
