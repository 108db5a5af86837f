"""A folder that is removed under a run, and taken by another: two real processes, two runs."""

from __future__ import annotations

import json
import multiprocessing as mp
import os
import shutil
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from sampa.lab.bench.ranks import free_port
from sampa.lab.training import checkpoint
from sampa.lab.training.checkpoint import NEWEST
from sampa.lab.training.claim import FolderReplaced
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.run import Run
from tests.lab.training.processes import carry_out_and_exit, exit_codes
from tests.lab.training.runs import Outcome, outcome, tiny_run
from tests.ranks import set_up_rank

pytestmark = pytest.mark.dist


_context = mp.get_context("forkserver")  # the one of tests.ranks, with everything loaded


def start(run: Run, out: Path, log: Path, **settings: Any) -> BaseProcess:
    process = _context.Process(target=_main, args=(run, out, log), kwargs=settings)
    process.start()
    return process


def _main(run: Run, out: Path, log: Path, **settings: Any) -> None:
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
    set_up_rank(0, 1, free_port())
    carry_out_and_exit(run, out, **settings)


def wait_for(path: Path, process: BaseProcess) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert process.is_alive()
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.mark.parametrize("how", ["removed", "moved away", "lock removed"])
def test_the_first_of_two_runs_in_a_folder_ends_and_the_second_is_not_touched(
    how: str, tmp_path: Path, uninterrupted: Outcome
) -> None:
    out = tmp_path / "run"
    first = start(tiny_run(seed=1, epochs=1000), out, tmp_path / "first", save_every=1)
    wait_for(out / "checkpoints" / "step-000000004", first)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGSTOP)  # wherever it is: it goes on when the second is done
    if how == "removed":
        shutil.rmtree(out)
    elif how == "moved away":
        out.rename(tmp_path / "moved")
    else:
        shutil.rmtree(out / "checkpoints")
        for name in (".lock", "metrics.jsonl"):
            (out / name).unlink()
    second = start(tiny_run(), out, tmp_path / "second", save_every=1, resume=True)
    assert exit_codes([second]) == [0], (tmp_path / "second").read_text()
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    os.kill(first.pid, signal.SIGCONT)
    assert exit_codes([first]) == [1]
    assert "was removed or replaced while this run was work" in (tmp_path / "first").read_text()
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert outcome(out) == uninterrupted


def replace_folder(path: Path) -> RunFolder:
    """Another run in a folder of the same name."""
    shutil.rmtree(path)
    other = RunFolder(path)
    other.open(tiny_run(), resume=False)
    return other


WRITERS: dict[str, Callable[[RunFolder], object]] = {
    "append": lambda folder: folder.append({"epoch": 0}),
    "note_times": lambda folder: folder.note_times({"epoch": 0}),
    "metrics_size": lambda folder: folder.metrics_size(),
    "write": lambda folder: folder.write("result.json", {}),
    "cut_metrics": lambda folder: folder.cut_metrics(),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_is_written_into_a_folder_that_was_replaced(writer: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.open(tiny_run(), resume=False)
    other = replace_folder(folder.path)
    before = {path: path.read_bytes() for path in folder.path.rglob("*")}
    with pytest.raises(
        (FolderReplaced, ValueError), match=r"was removed or replaced|must begin wi"
    ):
        WRITERS[writer](folder)
    assert {path: path.read_bytes() for path in folder.path.rglob("*")} == before
    folder.close()
    other.close()


@pytest.mark.parametrize("point", ["save: before model.safetensors", "save: before rename"])
def test_a_folder_replaced_in_the_midst_of_saving_is_noticed(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.open(tiny_run(), resume=False)
    others: list[RunFolder] = []

    def strike(name: str) -> None:
        if name == point:
            others.append(replace_folder(folder.path))
            partial = folder.checkpoints / ".step-000000003.partial"
            partial.mkdir(parents=True)  # the worst case: what is being written is there as well

    monkeypatch.setattr(checkpoint, "on_point", strike)
    owner = checkpoint.Owner(folder.id, folder.require_own)
    with pytest.raises((FolderReplaced, checkpoint.CheckpointError)):
        checkpoint.save(folder.checkpoints, NEWEST, 3, {"model": {}}, owner=owner)
    assert not [p for p in folder.checkpoints.iterdir() if not p.name.startswith(".")]
    assert json.loads((folder.path / "run.json").read_text())["id"] == others[0].id
    folder.close()
    others[0].close()
