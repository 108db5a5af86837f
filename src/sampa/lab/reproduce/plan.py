"""What an experiment is, and which runs it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sampa.lab.files import as_file_name
from sampa.lab.reproduce.core_time import core_hours, hours_in_words, tuning_hours
from sampa.lab.reproduce.request import Request
from sampa.lab.reproduce.settings import run_in_words
from sampa.lab.results.outcome import Choice, Outcome
from sampa.lab.results.paper import Scale, published
from sampa.lab.training.run import Run
from sampa.lab.training.session import Interrupted

Choices = dict[str, Choice]
"""By the name of the tuning; what is missing was not tuned at that scale."""


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
class PlannedEntry:
    """One entry of a table before it is trained: the same run with several seeds.

    Attributes:
        column: Most often the method, by the paper's name.
        run: What is trained; the seeds come later.
        readings: The rows that are read from it, each with the test metric it takes.
        stands_for: The paper's row that it is compared with, if that has another name.
    """

    column: str
    run: Run
    readings: tuple[tuple[str, str], ...]
    stands_for: str = ""

    @property
    def key(self) -> str:
        """A folder's name."""
        return as_file_name(f"{self.readings[0][0]} {self.column}")


@dataclass(frozen=True)
class Plan:
    """An experiment at a scale.

    Attributes:
        entries: In the order of the table.
        pairs: Which columns are compared on the same seeds: (column, baseline).
        about: Data, image size, network and epochs, for the heading; those of the first run if
            not given.
        average: Whether a row with the mean over the others is added.
    """

    entries: Sequence[PlannedEntry]
    pairs: tuple[tuple[str, str], ...] = ()
    about: str = ""
    average: bool = False

    @property
    def heading(self) -> str:
        return self.about or run_in_words(self.entries[0].run)


Planner = Callable[[Scale, Choices], Plan]


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of the paper.

    Attributes:
        id: What the user types.
        complete: Does what is not done yet, and completes the outcome.
        paper_time: How long it takes at the paper's scale, ...
        measuring_time: ... and on two cores, where what it measures is not training.
        planner: What is trained, by scale and choices; None if nothing is.
        seeds: How many it needs.
        tunings: What is chosen before.
        further: What it also trains, with a trainer of its own.
        takes_over: Whether other experiments' runs are taken for its own, if they are equal.
    """

    id: str
    complete: Callable[[Outcome, Request], Outcome]
    paper_time: str
    measuring_time: str = ""
    planner: Planner | None = None
    seeds: int = 3
    tunings: tuple[str, ...] = ()
    further: Planner | None = None
    takes_over: bool = True

    @property
    def title(self) -> str:
        """What it is, in one line."""
        return published(self.id).title

    @property
    def time(self) -> dict[Scale, str]:
        cpu = self.measuring_time or hours_in_words(self.core_hours())
        return {"paper": self.paper_time, "cpu": cpu, "smoke": "seconds"}

    def core_hours(self) -> float:
        """Of all its runs and tunings at the reduced scale, were none of them made before."""
        trained = self.seeds * core_hours([*self.runs("cpu"), *self.further_runs("cpu")])
        return trained + sum(map(tuning_hours, self.tunings))

    def blank(self, scale: Scale) -> Outcome:
        """The outcome before anything is measured: what the paper says."""
        known = published(self.id)
        return Outcome(self.id, known.title, scale, "", known.label, known.claim)

    def outcome(self, request: Request) -> Outcome:
        """Do what is not done yet.

        Raises:
            Unfinished: If some runs failed, or a signal came.
        """
        return self.complete(self.blank(request.scale), request)

    def runs(self, scale: Scale) -> list[Run]:
        """All training runs at a scale, each once (the seed left at 0)."""
        return self._runs_of(self.planner, scale)

    def further_runs(self, scale: Scale) -> list[Run]:
        """What is trained beside them, likewise; no other experiment's run is equal to these."""
        return self._runs_of(self.further, scale)

    def _runs_of(self, planner: Planner | None, scale: Scale) -> list[Run]:
        entries = planner(scale, {}).entries if planner else ()
        return [named(entry, self.blank(scale)) for entry in entries]


def named(entry: PlannedEntry, blank: Outcome) -> Run:
    """A run named after its experiment and row; the paper's recipes keep their names."""
    if blank.scale == "paper":
        return entry.run
    name = f"{blank.run_prefix}{entry.readings[0][0]}"
    return replace(entry.run, name=name, about=run_in_words(entry.run))


def accuracies(rows: Mapping[str, Run], methods: Mapping[str, str]) -> list[PlannedEntry]:
    """A table of accuracies: a run for each row, with several methods by the paper's names."""
    return [e for row, run in rows.items() for e in readings_of(run, methods, (row, "accuracy"))]


def readings_of(
    run: Run, methods: Mapping[str, str], *readings: tuple[str, str]
) -> list[PlannedEntry]:
    """One run with several methods, and what is read from each."""
    return [PlannedEntry(name, run.changed(method=m), readings) for name, m in methods.items()]


def standing_for(row: str, entries: Iterable[PlannedEntry]) -> list[PlannedEntry]:
    """The same entries, compared with one row of the paper."""
    return [replace(entry, stands_for=row) for entry in entries]


def against_first(columns: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Each column compared with the first."""
    first, *others = columns
    return tuple((column, first) for column in others)
