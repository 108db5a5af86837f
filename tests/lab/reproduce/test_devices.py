"""Where runs are carried out on a machine with GPUs; torch is told that there are some."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sampa.lab.conditions import Conditions
from sampa.lab.reproduce import batch, gap, runner
from sampa.lab.reproduce.request import Request
from sampa.lab.training.jobs import Job, Jobs, as_many_as_fit, gpus_each
from tests.lab.training.runs import tiny_run


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: cuda)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)


class Asked(Exception):
    """Instead of training: the device that the model was to be on."""


@pytest.fixture
def devices(four_gpus: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The devices that models are moved to; moving one ends the run."""
    found: list[str] = []

    def to(_model: torch.nn.Module, device: torch.device) -> None:
        found.append(str(device))
        raise Asked

    monkeypatch.setattr(torch.nn.Module, "to", to)
    monkeypatch.setattr("sampa.lab.conditions.Conditions.now", Conditions)
    return found


def test_a_batch_of_runs_trains_on_the_gpu(devices: list[str], tmp_path: Path) -> None:
    job = batch.job_of("tiny", {tmp_path: tiny_run()}, Request("paper", tmp_path), 1)
    batch.main(job.arguments()[2:])
    assert devices == ["cuda:0"]


def test_a_watched_run_trains_on_the_gpu(devices: list[str], tmp_path: Path) -> None:
    with pytest.raises(Asked):
        gap.watched(tiny_run(), tmp_path, Request("paper", tmp_path))
    assert devices == ["cuda:0"]


def test_a_run_of_this_process_trains_on_the_gpu(devices: list[str], tmp_path: Path) -> None:
    with pytest.raises(Asked):
        runner.train_all({tmp_path: tiny_run()}, Request("smoke", tmp_path), "tiny")
    assert devices == ["cuda:0"]


# ---- how many at once, and who has which -----------------------------------------------------


@pytest.mark.parametrize(("devices", "jobs"), [(1, 4), (2, 2), (3, 1), (8, 1)])
def test_there_are_as_many_jobs_as_gpus_for_them(four_gpus: None, devices: int, jobs: int) -> None:
    assert as_many_as_fit(devices) == jobs


def test_without_a_gpu_cores_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    assert as_many_as_fit(2) == 3
    assert gpus_each(2, 1) == [{}, {}]


@pytest.mark.parametrize(
    ("at_once", "devices", "shown"),
    [
        (4, 1, ["0", "1", "2", "3"]),
        (2, 2, ["0,1", "2,3"]),
        (2, 1, ["0", "1"]),
        (3, 2, ["0,1", "2,3", "0,1"]),  # more than there is room for
        (2, 8, ["0,1,2,3", "0,1,2,3"]),
    ],
)
def test_each_job_sees_gpus_of_its_own(
    four_gpus: None, at_once: int, devices: int, shown: list[str]
) -> None:
    assert gpus_each(at_once, devices) == [{"CUDA_VISIBLE_DEVICES": s} for s in shown]


def test_nothing_is_hidden_from_a_single_job(four_gpus: None) -> None:
    assert gpus_each(1, 2) == [{}]


def test_gpus_that_are_hidden_stay_hidden(four_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert gpus_each(2, 1) == [{"CUDA_VISIBLE_DEVICES": "5"}, {"CUDA_VISIBLE_DEVICES": "7"}]


def test_jobs_at_work_at_the_same_time_have_different_gpus(four_gpus: None, tmp_path: Path) -> None:
    look = "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES']); time.sleep(0.5)"
    jobs = [Job(name, {tmp_path / name: tiny_run()}, lambda: ["-c", look]) for name in "abc"]
    assert Jobs().run_all(jobs, 2, devices=2) == [0, 0, 0]
    seen = [(tmp_path / name / "log.txt").read_text().strip() for name in "abc"]
    assert set(seen[:2]) == {"0,1", "2,3"}
    assert seen[2] in seen[:2]
