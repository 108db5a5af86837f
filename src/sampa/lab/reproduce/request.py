"""Requests: what the user asked for, and what an experiment is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sampa.lab.reproduce.outcome import Outcome
from sampa.lab.reproduce.plan import Scale
from sampa.lab.training.run import Run
from sampa.lab.training.session import Interrupted


@dataclass(frozen=True)
class Request:
    """How an experiment is to be carried out.

    Attributes:
        scale: The paper's settings, a reduced edition, or one for tests.
        out: The folder of all experiments.
        seeds: How many; None takes what the experiment says.
        devices: Processes a run.
        jobs: Runs at the same time.
        data_dir: Where data sets are.
    """

    scale: Scale
    out: Path
    seeds: int | None = None
    devices: int = 1
    jobs: int = 1
    data_dir: Path | None = None

    def folder(self, name: str) -> Path:
        """The folder of an experiment or of a tuning at this scale."""
        return self.out / f"{name}-{self.scale}"


class Unfinished(Exception):
    """Some runs are not done; what is done is kept, and the same command goes on."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def unfinished_if_stopped() -> Iterator[None]:
    """Around a run in this process: when a signal stops it, the experiment is unfinished.

    Raises:
        Unfinished: With the exit code of that signal.
    """
    try:
        yield
    except Interrupted as stopped:
        code = 128 + stopped.signal_number
        raise Unfinished(f"{stopped}; the same command goes on", code) from stopped


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of the paper.

    Attributes:
        id: What the user types.
        title: What it is, in one line.
        time: How long it takes, by scale.
        carry_out: Does what is not done yet, and gives the outcome.
        runs: All training runs at a scale, each once (the seed left at 0).
    """

    id: str
    title: str
    time: dict[Scale, str]
    carry_out: Callable[[Request], Outcome]
    runs: Callable[[Scale], list[Run]]
