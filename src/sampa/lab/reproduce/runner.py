"""The runner: from a plan to finished runs, and from their results to an outcome."""

from __future__ import annotations

import itertools
import shutil
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sampa.lab.conditions import Conditions
from sampa.lab.progress import Bar
from sampa.lab.reproduce.batch import job_of
from sampa.lab.reproduce.kept import KeptRuns
from sampa.lab.reproduce.plan import (
    Plan,
    PlannedEntry,
    Planner,
    Unfinished,
    named,
    unfinished_if_stopped,
)
from sampa.lab.reproduce.request import Request
from sampa.lab.reproduce.tuning import tune
from sampa.lab.results.charts import Chart
from sampa.lab.results.outcome import Entry, Outcome, RunResult, Tuned, with_average
from sampa.lab.results.paper import published
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.hyperparameters import BASE_NAMES
from sampa.lab.training.jobs import Job, Jobs, as_many_as_fit
from sampa.lab.training.loop import train
from sampa.lab.training.run import Run
from sampa.lab.training.session import Settings

RUNS_A_PROCESS = 4
Trained = Sequence[tuple[PlannedEntry, int, RunResult]]
"""Entries with a seed, and what the run gave."""
Pictures = Callable[[Outcome], tuple[Chart, ...]]


def train_all(runs: Mapping[Path, Run], request: Request, name: str) -> dict[Path, RunResult]:
    """Do all runs that are not done, each in its folder.

    Args:
        runs: By their folders, below that of the experiment or tuning.
        request: How, and where finished runs are kept.
        name: Of the experiment or tuning.

    Raises:
        Unfinished: If some failed, or a signal came.
    """
    with kept_runs(request, name):
        _train(runs, request)
    return {folder: finished(folder, run) for folder, run in runs.items()}


@contextmanager
def kept_runs(request: Request, name: str, *, restores: bool = True) -> Iterator[None]:
    """Put back the runs that are kept, and keep those that are finished inside the block."""
    file = request.kept(name)
    if file is None:
        yield
        return
    kept = KeptRuns(request.folder(name), file)
    if restores:
        kept.restore()
    with kept.growing():
        yield


def _train(runs: Mapping[Path, Run], request: Request) -> None:
    if request.scale == "smoke":  # a process would take longer than all of them
        settings = Settings(data_dir=request.data_dir, resume=True, quiet=True)
        with Bar("runs", len(runs)) as bar:
            for folder, run in runs.items():
                with unfinished_if_stopped():
                    train(run, folder, settings)
                bar.advance()
    else:
        _train_in_processes(runs, request)


def _train_in_processes(runs: Mapping[Path, Run], request: Request) -> None:
    at_once = request.jobs or as_many_as_fit(request.devices)
    jobs, batches = Jobs(), list(_batches(runs, request, at_once))
    codes = jobs.run_all(batches, at_once, request.devices)
    if jobs.asked:
        code = 128 + jobs.asked[0]
        raise Unfinished("stopped; the same command goes on", code)
    failed = [batch for batch, code in zip(batches, codes, strict=True) if code]
    if failed:
        raise Unfinished(f"{len(failed)} of {len(batches)} jobs failed, first {failed[0].name}", 1)
    for folder in runs:  # what only an unfinished run needs; the best model stays, for `sampa eval`
        for checkpoint in (folder / "checkpoints").glob("step-*"):
            shutil.rmtree(checkpoint)


def _batches(runs: Mapping[Path, Run], request: Request, at_once: int) -> Iterator[Job]:
    """Runs for one process each: a few neighbors with the same name and seed."""
    size = RUNS_A_PROCESS if request.devices == 1 else 1
    for name, group in itertools.groupby(
        runs.items(), lambda item: f"{item[1].name} seed {item[1].seed}"
    ):
        while part := dict(itertools.islice(group, size)):
            yield job_of(name, part, request, at_once)


def finished(folder: Path, run: Run) -> RunResult:
    """The result of a run that is done."""
    found = RunFolder(folder).result_of(run)
    assert found is not None
    return found


# ---- grids -----------------------------------------------------------------------------------


def run_grid(
    blank: Outcome,
    request: Request,
    planner: Planner,
    tunings: Sequence[str],
    seeds: int,
    pictures: Pictures = lambda outcome: (),
) -> Outcome:
    """Tune, train, and put the results beside the paper's."""
    tuned = tuned_choices(tunings, request)
    plan = planner(request.scale, {name: t.choice for name, t in tuned.items()})
    grid = planned_runs(plan, blank, request, seeds)
    results = train_all({folder: run for _, folder, run in grid}, request, blank.id)
    trained = [(entry, run.seed, results[folder]) for entry, folder, run in grid]
    entries = tuple(_entries(plan, trained, blank.id))
    outcome = replace(
        blank,
        about=plan.heading,
        unit="test metric in %, mean ± standard deviation over seeds",
        entries=with_average(entries, published(blank.id)) if plan.average else entries,
        pairs=plan.pairs,
        facts=tuple(_memorization(trained)),
        tuning=tuned,
        conditions=conditions_of_runs(results, tuned, request),
    )
    return replace(outcome, charts=pictures(outcome))


def planned_runs(
    plan: Plan, blank: Outcome, request: Request, seeds: int
) -> list[tuple[PlannedEntry, Path, Run]]:
    """All runs with their folders, seed by seed: an unfinished grid is one with fewer seeds."""
    folder = request.folder(blank.id)
    return [
        (e, folder / e.key / f"seed-{seed}", named(e, blank).changed(seed=seed))
        for seed in range(request.seeds or seeds)
        for e in plan.entries
    ]


def _entries(plan: Plan, trained: Trained, name: str) -> list[Entry]:
    known = published(name)
    entries: list[Entry] = []
    for planned in plan.entries:
        results = {seed: result for entry, seed, result in trained if entry is planned}
        for row, metric in planned.readings:
            values = {seed: result.test[metric] for seed, result in results.items()}
            entries.append(Entry(row, planned.column, values, known.value(row, planned.column)))
    order = list(dict.fromkeys(entry.row for entry in entries))
    return sorted(entries, key=lambda entry: order.index(entry.row))


def _memorization(trained: Trained) -> list[str]:
    """How well the base optimizer learns its training labels by heart, row by row."""
    found: dict[str, list[float]] = {}
    for planned, _, result in trained:
        if planned.run.method in BASE_NAMES and result.train_accuracy is not None:
            found.setdefault(planned.readings[0][0], []).append(result.train_accuracy)
    parts = [f"{row}: {statistics.fmean(values):.1f} %" for row, values in found.items()]
    what = "Training labels that the base optimizer's last model gives back, mean over seeds"
    return [f"{what}: {'; '.join(parts)}."] if parts else []


# ---- tuning and conditions -------------------------------------------------------------------


def tuned_choices(names: Sequence[str], request: Request) -> dict[str, Tuned]:
    """What each tuning chose; those that a scale does without are left out."""
    found: dict[str, Tuned] = {}
    for name in names:

        def score(trials: dict[str, Run], title: str = f"tuning-{name}") -> dict[str, float]:
            folders = {request.folder(title) / key: run for key, run in trials.items()}
            results = train_all(folders, request, title)
            return {folder.name: result.best_validation for folder, result in results.items()}

        tuned = tune(name, request.scale, score)
        if tuned is not None:
            found[name] = tuned
    return found


def conditions_of_runs(
    folders: Iterable[Path], tuned: Mapping[str, Tuned], request: Request
) -> Conditions:
    """Under what runs were made, those of their tunings too."""
    tried = [request.folder(f"tuning-{n}") / run for n, t in tuned.items() for run in t.scores]
    return Conditions.merged(RunFolder(folder).conditions() for folder in [*folders, *tried])
