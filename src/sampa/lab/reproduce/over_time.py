"""Accuracy against time, the point of SAMPa: curves of full-size runs over the time of their steps.

No run is timed: runs are made two at a time, on whatever else the machine does. Time is the number
of updates times the time of a step, measured by interleaved steps on two processes.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sampa.lab.conditions import Conditions
from sampa.lab.reproduce.grids import plan_full_cifar10
from sampa.lab.reproduce.request import Request
from sampa.lab.reproduce.runner import planned_runs, run_grid
from sampa.lab.reproduce.speed import DATA_PARALLEL, ContestResult, contest
from sampa.lab.results.charts import EXTREMES, Chart, Line, over_seeds
from sampa.lab.results.outcome import Choice, Entry, Outcome
from sampa.lab.training.folder import RunFolder

CURVES_TUNINGS, CURVES_SEEDS = ("full",), 5
DRAWN_CURVES = {"SGD": "SGD", "SAM": "SAM", DATA_PARALLEL: "SAM", "SAMPa-0.2": "SAMPa-0.2"}
"""What is drawn: a way to make steps, and the method whose runs it makes faster."""
TARGET = "SAM"
REACHED = f"minutes to {TARGET}'s final accuracy"
CURVE_METRIC = "validation_accuracy"


@dataclass(frozen=True)
class TimedCurve:
    """A run over time.

    Attributes:
        minutes: At the end of each epoch.
        accuracy: On validation images, in percent.
    """

    minutes: list[float]
    accuracy: list[float]

    def reaches(self, accuracy: float) -> float | None:
        """The minutes after which it first has an accuracy, if it ever does."""
        reached = (m for m, a in zip(self.minutes, self.accuracy, strict=True) if a >= accuracy)
        return next(reached, None)


Curves = dict[str, dict[int, TimedCurve]]
"""By what is drawn, and by seed."""


def accuracy_over_time(blank: Outcome, request: Request) -> Outcome:
    """The runs of `full-cifar10`, which are taken over if they are made, and a contest of steps."""
    outcome = run_grid(blank, request, plan_full_cifar10, CURVES_TUNINGS, CURVES_SEEDS)
    found = contest("over-time", request)
    chosen = {name: tuned.choice for name, tuned in outcome.tuning.items()}
    curves = curves_of(_epochs(blank, request, chosen), found)
    entries = (*_finals(curves), *_times(curves))
    missed = [
        f"{name} {sum(_reached(curves, name, seed) is None for seed in runs)} of {len(runs)}"
        for name, runs in curves.items()
    ]
    return replace(
        outcome,
        about=f"{outcome.about}. Time: {found.about}",
        unit="minutes, or validation accuracy in %; mean ± standard deviation over seeds",
        entries=entries,
        pairs=tuple((name, TARGET) for name in DRAWN_CURVES if name != TARGET),
        charts=(_chart(curves, found),),
        facts=(*outcome.facts, f"Runs that do not reach {TARGET}'s: {', '.join(missed)}."),
        conditions=Conditions.merged([outcome.conditions, found.conditions]),
    )


def _epochs(
    blank: Outcome, request: Request, chosen: Mapping[str, Choice]
) -> dict[tuple[str, int], list[dict[str, float]]]:
    """What each run wrote at the end of its epochs, by method and seed."""
    plan = plan_full_cifar10(request.scale, dict(chosen))
    runs = planned_runs(plan, blank, request, CURVES_SEEDS)
    return {(e.column, run.seed): RunFolder(folder).metrics() for e, folder, run in runs}


def curves_of(
    epochs: Mapping[tuple[str, int], Sequence[Mapping[str, float]]], found: ContestResult
) -> Curves:
    """Every run over the updates it made times the median time of a step."""
    curves: Curves = {}
    for name, method in DRAWN_CURVES.items():
        minutes = statistics.median(found.seconds[name]) / 60
        curves[name] = {
            seed: _timed_curve(lines, minutes)
            for (made_with, seed), lines in epochs.items()
            if made_with == method
        }
    return curves


def _timed_curve(lines: Sequence[Mapping[str, float]], minutes: float) -> TimedCurve:
    done = [minutes * line["step"] for line in lines]
    return TimedCurve(done, [line[CURVE_METRIC] for line in lines])


def _reached(curves: Curves, name: str, seed: int) -> float | None:
    """When a run has the accuracy that SAM's of the same seed ends with."""
    return curves[name][seed].reaches(curves[TARGET][seed].accuracy[-1])


def _finals(curves: Curves) -> Iterator[Entry]:
    for name, runs in curves.items():
        yield Entry("final validation accuracy", name, {s: c.accuracy[-1] for s, c in runs.items()})
    for name, runs in curves.items():
        whole = {seed: curve.minutes[-1] for seed, curve in runs.items()}
        yield Entry("minutes of a whole run", name, whole, kind="median")


def _times(curves: Curves) -> Iterator[Entry]:
    """Only of those that reach it: the page says how many do not."""
    for name, runs in curves.items():
        times = {seed: _reached(curves, name, seed) for seed in runs}
        reached = {seed: minutes for seed, minutes in times.items() if minutes is not None}
        if reached:
            yield Entry(REACHED, name, reached, kind="median")


def _chart(curves: Curves, found: ContestResult) -> Chart:
    lines: list[Line] = []
    for name, runs in curves.items():
        first, *_ = runs.values()
        by_epoch = list(zip(*(curve.accuracy for curve in runs.values()), strict=True))
        lines.append(over_seeds(name, first.minutes, by_epoch))
    note = (
        f"Time is steps times the time of a step: the median of {found.rounds} interleaved steps "
        f"({found.model}, batches of {found.batch_size}), SGD and SAM on one core, "
        f"the others on two. {DATA_PARALLEL} has the curve of SAM. {EXTREMES}"
    )
    title, axis = "Validation accuracy over time", "validation accuracy in %"
    return Chart("accuracy-over-time", title, "minutes", axis, lines, note)
