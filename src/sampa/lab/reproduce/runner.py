"""The runner: from a plan to finished runs, and from their results to an outcome."""

from __future__ import annotations

import itertools
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sampa.lab.reproduce.batch import Batch
from sampa.lab.reproduce.outcome import Chart, Entry, Outcome, with_average
from sampa.lab.reproduce.paper import published
from sampa.lab.reproduce.plan import Cell, Choices, Plan, Scale
from sampa.lab.reproduce.request import Request, Unfinished, unfinished_if_stopped
from sampa.lab.reproduce.settings import described
from sampa.lab.reproduce.tuning import Trial, Tuned, tune
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.jobs import Jobs
from sampa.lab.training.loop import train
from sampa.lab.training.method import BASE_NAMES
from sampa.lab.training.run import Result, Run
from sampa.lab.training.session import Settings

Planner = Callable[[Scale, Choices], Plan]


BATCH = 4  # runs in one process


@dataclass(frozen=True)
class PlannedRun:
    """A run and where it is carried out."""

    run: Run
    folder: Path

    def result(self) -> Result:
        """What came out; only after `carry_out`."""
        found = RunFolder(self.folder).result_of(self.run)
        assert found is not None
        return found


def carry_out(runs: Sequence[PlannedRun], request: Request) -> None:
    """Do all runs that are not done.

    Raises:
        Unfinished: If some failed, or a signal came.
    """
    if request.scale == "smoke":  # a process would take longer than all of them
        for planned in runs:
            settings = Settings(data_dir=request.data_dir, resume=True, quiet=True)
            with unfinished_if_stopped():
                train(planned.run, planned.folder, settings)
        return
    jobs, batches = Jobs(), list(_batches(runs, request))
    codes = jobs.carry_out_all(batches, request.jobs, request.devices)
    if jobs.asked:
        code = 128 + jobs.asked[0]
        raise Unfinished("stopped after saving; the same command goes on", code)
    failed = [batch for batch, code in zip(batches, codes, strict=True) if code]
    if failed:
        raise Unfinished(f"{len(failed)} of {len(batches)} jobs failed, first {failed[0]}", 1)
    for planned in runs:
        _free(planned.folder)


def _batches(runs: Sequence[PlannedRun], request: Request) -> Iterator[Batch]:
    """Runs for one process each: a few neighbors with the same name and seed."""
    size = BATCH if request.devices == 1 else 1
    for name, group in itertools.groupby(runs, lambda p: f"{p.run.name} seed {p.run.seed}"):
        left = list(group)
        while left:
            batch = {each.folder: each.run for each in left[:size]}
            yield Batch(name, batch, left[0].folder, request)
            left = left[size:]


def _free(folder: Path) -> None:
    """Remove what only an unfinished run needs; the best model stays, for `sampa eval`."""
    for checkpoint in (folder / "checkpoints").glob("step-*"):
        shutil.rmtree(checkpoint)


# ---- grids -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class GridSpec:
    """An experiment that is a grid of training runs.

    Attributes:
        planner: From scale and choices to the plan.
        tunings: What is chosen before.
        seeds: How many, if the user does not say.
        pictures: Charts of the outcome.
    """

    name: str
    title: str
    planner: Planner
    tunings: tuple[str, ...]
    seeds: int
    pictures: Callable[[Outcome], tuple[Chart, ...]] = lambda outcome: ()


def run_grid(spec: GridSpec, request: Request) -> Outcome:
    """Tune, train, and put the results beside the paper's."""
    name = spec.name
    found = tuned_choices(spec.tunings, request)
    choices = {t: tuned.choice for t, tuned in found.items()}
    plan = named(spec.planner(request.scale, choices), name, request.scale)
    grid = planned_runs(plan, request.folder(name), request.seeds or spec.seeds)
    carry_out([planned for _, planned in grid], request)
    known = published(name)
    entries = tuple(_entries(plan, grid, name))
    outcome = Outcome(
        id=name,
        title=spec.title,
        scale=request.scale,
        about=plan.about,
        label=known.label,
        claim=known.claim,
        unit="test metric in %, mean ± standard deviation over seeds",
        entries=with_average(entries, known) if plan.average else entries,
        pairs=plan.pairs,
        facts=tuple(_memorization(grid)),
        tuning={t: tuned.as_json() for t, tuned in found.items()},
        conditions=conditions_of([planned.folder for _, planned in grid]),
    )
    return replace(outcome, charts=spec.pictures(outcome))


def named(plan: Plan, name: str, scale: Scale) -> Plan:
    """The plan with its runs named after it; the paper's recipes keep their names."""
    if scale == "paper":
        return plan
    cells = [
        replace(
            c,
            run=replace(c.run, name=f"{name}-{scale}: {c.readings[0][0]}", about=described(c.run)),
        )
        for c in plan.cells
    ]
    return replace(plan, cells=tuple(cells))


def planned_runs(plan: Plan, folder: Path, seeds: int) -> list[tuple[Cell, PlannedRun]]:
    """All runs, seed by seed, so that an unfinished grid is one with fewer seeds."""
    return [
        (cell, PlannedRun(cell.run.changed(seed=seed), folder / cell.key / f"seed-{seed}"))
        for seed in range(seeds)
        for cell in plan.cells
    ]


def _entries(plan: Plan, grid: Sequence[tuple[Cell, PlannedRun]], name: str) -> list[Entry]:
    known = published(name)
    entries: list[Entry] = []
    for cell in plan.cells:
        results = {planned.run.seed: planned.result().test for c, planned in grid if c is cell}
        for row, metric in cell.readings:
            values = {seed: test[metric] for seed, test in results.items()}
            entries.append(Entry(row, cell.column, values, known.value(row, cell.column)))
    order = list(dict.fromkeys(entry.row for entry in entries))
    return sorted(entries, key=lambda entry: order.index(entry.row))


def _memorization(grid: Sequence[tuple[Cell, PlannedRun]]) -> list[str]:
    """How well the base optimizer learns its training labels by heart, row by row."""
    found: dict[str, list[float]] = {}
    for cell, planned in grid:
        accuracy = planned.result().train_accuracy
        if planned.run.method in BASE_NAMES and accuracy is not None:
            found.setdefault(cell.readings[0][0], []).append(accuracy)
    parts = [f"{row}: {statistics.fmean(values):.1f} %" for row, values in found.items()]
    if not parts:
        return []
    what = "Training labels that the base optimizer's last model gives back, mean over seeds"
    return [f"{what}: {'; '.join(parts)}."]


# ---- tuning ----------------------------------------------------------------------------------


def tuned_choices(names: Sequence[str], request: Request) -> dict[str, Tuned]:
    """What each tuning chose; those that a scale does without are left out."""
    found = {name: _tuned(name, request) for name in names}
    return {name: tuned for name, tuned in found.items() if tuned is not None}


def _tuned(name: str, request: Request) -> Tuned | None:
    def score(trials: list[Trial]) -> list[float]:
        folder = request.folder(f"tuning-{name}")
        runs = [PlannedRun(trial.run, folder / trial.key) for trial in trials]
        carry_out(runs, request)
        return [planned.result().best_validation for planned in runs]

    return tune(name, request.scale, score)


# ---- conditions ------------------------------------------------------------------------------


def conditions_of(folders: Sequence[Path]) -> dict[str, Any]:
    """Under what runs were made: one value, or all that occur."""
    found = [(RunFolder(folder).read("run.json") or {}).get("conditions", {}) for folder in folders]
    return merged(found)


def merged(conditions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several conditions as one; a name with different values has their list."""
    values: dict[str, Any] = {}
    for name in dict.fromkeys(name for c in conditions for name in c):
        parts = [c[name] for c in conditions if name in c]
        if isinstance(parts[0], dict):
            values[name] = merged(parts)
        else:
            different = list(dict.fromkeys(parts))
            values[name] = different[0] if len(different) == 1 else different
    return values
