"""Runs that an experiment makes with a trainer of its own say under what they were made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sampa.lab.reproduce import gap, peers
from sampa.lab.reproduce.request import Request
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.run import Run
from tests.lab.training.runs import tiny_run

Trained = Callable[[Run, Path, Request], Any]
RUN = tiny_run(method="sampa-0.2", rho=0.1, epochs=1)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("train", [gap.watched, peers.train_peer])
def test_they_have_one_thread_as_other_runs_have(
    train: Trained, two_threads: None, tmp_path: Path
) -> None:
    train(RUN, tmp_path / "run", Request("smoke", tmp_path))
    assert RunFolder(tmp_path / "run").conditions().each("threads") == [1]
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("train", "lost"),
    [
        (gap.watched, "result.json"),
        (gap.watched, gap.GAP_FILE),
        (peers.train_peer, "result.json"),
    ],
)
def test_one_that_goes_on_names_the_commits_of_both_parts(
    train: Trained, lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, out = Request("smoke", tmp_path), tmp_path / "run"
    monkeypatch.setattr("sampa.lab.conditions.commit", lambda: "first")
    train(RUN, out, request)
    (out / lost).unlink()
    monkeypatch.setattr("sampa.lab.conditions.commit", lambda: "second")
    train(RUN, out, request)
    assert RunFolder(out).conditions().each("commit") == ["first", "second"]
