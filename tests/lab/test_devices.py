"""Which device a command works on; torch is told which devices there are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sampa.lab.cli import main
from sampa.lab.devices import find_device
from sampa.messages import WrongUsage


def pretend(monkeypatch: pytest.MonkeyPatch, kind: str | None, count: int = 0) -> None:
    accelerator = None if kind is None else torch.device(kind)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: accelerator)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)
    monkeypatch.delenv("LOCAL_RANK", raising=False)


def test_without_an_accelerator_it_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, None)
    assert find_device() == torch.device("cpu")


@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps"])
def test_any_kind_of_accelerator_is_found(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, kind, 1)
    assert find_device() == torch.device(kind, 0)
    assert find_device("cpu") == torch.device("cpu")


def test_every_rank_takes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "cuda", 4)
    assert [find_device("cuda", rank).index for rank in range(4)] == [0, 1, 2, 3]
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert find_device() == torch.device("cuda", 3)
    assert find_device("cuda:1") == torch.device("cuda", 1)


@pytest.mark.parametrize(
    ("asked", "rank", "message"),
    [
        ("gpu", 0, "--device must name a device such as cpu or cuda, got 'gpu'"),
        ("cuda:x", 0, "--device must name a device such as cpu or cuda, got 'cuda:x'"),
        ("xpu", 0, "--device xpu is not available: .* finds cuda on this machine"),
        ("cuda:2", 0, r"cuda:2 is not available: this machine has 2 cuda device\(s\)"),
        (None, 2, r"cuda:2 is not available: .* start fewer processes, or use --device cpu"),
    ],
)
def test_a_device_that_is_missing_is_named(
    asked: str | None, rank: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, "cuda", 2)
    with pytest.raises(WrongUsage, match=message):
        find_device(asked, rank)


@pytest.mark.parametrize("command", ["bench", "train digits-cpu", "train digits-cpu --devices 2"])
def test_a_missing_device_is_one_line_and_wrong_usage_before_anything_is_written(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    pretend(monkeypatch, None)
    assert main([*command.split(), "--device", "cuda"]) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    name = command.split()[0]
    assert line.startswith(f"sampa {name}: --device cuda is not available: torch ")
    assert "finds no accelerator on this machine" in line
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_too_few_accelerators_for_the_processes_are_told_before_they_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    pretend(monkeypatch, "cuda", 1)
    assert main(["train", "digits-cpu", "--devices", "2"]) == 2
    assert "this machine has 1 cuda device(s)" in capsys.readouterr().err
