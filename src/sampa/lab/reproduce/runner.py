"""The runner: from a plan to finished runs, and from their results to an outcome."""

from __future__ import annotations

import itertools
import shutil
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from sampa.lab.conditions import Conditions
from sampa.lab.progress import Bar
from sampa.lab.reproduce.batch import job_of
from sampa.lab.reproduce.finished import core_hours_of, line_of
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
from sampa.lab.reproduce.shared import borrow, first_of_equals, hand_on
from sampa.lab.reproduce.tuning import tune
from sampa.lab.results.charts import Chart
from sampa.lab.results.outcome import Entry, Outcome, RunResult, Tuned, with_average
from sampa.lab.results.paper import published
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.hyperparameters import BASE_NAMES
from sampa.lab.training.jobs import Job, Jobs, as_many_as_fit
from sampa.lab.training.launch import set_up_process
from sampa.lab.training.loop import train
from sampa.lab.training.run import Run
from sampa.lab.training.session import Settings

RUNS_A_PROCESS = 4
Trained = Sequence[tuple[PlannedEntry, int, RunResult]]
"""Entries with a seed, and what the run gave."""
Pictures = Callable[[Outcome], tuple[Chart, ...]]
PlannedRuns = list[tuple[PlannedEntry, Path, Run]]
Further = Callable[[PlannedRuns], Mapping[Path, Run]]
"""From the runs of a grid to those that an experiment makes beside them, by their folders."""


def train_all(
    runs: Mapping[Path, Run], request: Request, name: str, further: Mapping[Path, Run] | None = None
) -> dict[Path, RunResult]:
    """Do all runs that are not done, each in its folder; of runs with the same settings one.

    Args:
        runs: By their folders, below that of the experiment or tuning.
        request: How, and where finished runs are kept.
        name: Of the experiment or tuning.
        further: What the experiment will make itself, and is kept in the same file.

    Raises:
        Unfinished: If some failed, or a signal came.
    """
    with kept_runs(request, name, {**runs, **(further or {})}):
        borrow(runs, request)
        _train(first_of_equals(runs), request)
        hand_on(runs)
    return {folder: finished(folder, run) for folder, run in runs.items()}


@contextmanager
def kept_runs(
    request: Request, name: str, runs: Mapping[Path, Run], *, restores: bool = True
) -> Iterator[None]:
    """Put back runs that are kept, and keep those that are finished inside the block."""
    file = request.kept(name)
    if file is None:
        yield
        return
    others, dirty = request.is_tuning(name), request.takes_dirty
    kept = KeptRuns(
        request.folder(name),
        file,
        runs,
        keeps_others=others,
        processes=request.processes,
        allow_dirty=dirty,
    )
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
    """The result of a run that is done.

    Raises:
        Unfinished: If the folder was begun for another run, whose work is not thrown away.
    """
    found = RunFolder(folder).result_of(run)
    if found is None:
        reason = "was begun with other settings; remove it or choose another --out"
        raise Unfinished(f"{folder} {reason}", 1)
    return found


@contextmanager
def opened_folder(run: Run, out: Path) -> Iterator[RunFolder]:
    """The folder of a run that a trainer of an experiment's own makes in this process.

    It has one thread, as the processes of other runs have.

    Raises:
        Unfinished: If a signal came.
    """
    threads, folder = torch.get_num_threads(), RunFolder(out)
    set_up_process(1)
    try:
        folder.open(run, resume=True)
        (out / "result.json").unlink(missing_ok=True)  # it lacks what was seen, and is made anew
        folder.note_conditions()
        with unfinished_if_stopped():
            yield folder
    finally:
        folder.close()
        torch.set_num_threads(threads)


# ---- grids -----------------------------------------------------------------------------------


def run_grid(
    blank: Outcome,
    request: Request,
    planner: Planner,
    tunings: Sequence[str],
    seeds: int,
    pictures: Pictures = lambda outcome: (),
    further: Further = lambda grid: {},
) -> Outcome:
    """Tune, train, and put the results beside the paper's."""
    tuned = tuned_choices(tunings, request)
    plan = planner(request.scale, {name: t.choice for name, t in tuned.items()})
    grid = planned_runs(plan, blank, request, seeds)
    runs = {folder: run for _, folder, run in grid}
    results = train_all(runs, request, blank.id, further(grid))
    trained = [(entry, run.seed, results[folder]) for entry, folder, run in grid]
    entries = tuple(_entries(plan, trained, blank.id))
    outcome = replace(
        blank,
        about=plan.heading,
        unit="test metric in %, mean ± standard deviation over seeds",
        entries=with_average(entries, published(blank.id)) if plan.average else entries,
        pairs=plan.pairs,
        facts=(*_stand_ins(plan, blank.id), *_facts(trained), time_spent(results, tuned, request)),
        tuning=tuned,
        conditions=conditions_of_runs(results, tuned, request),
    )
    return replace(outcome, charts=pictures(outcome))


def planned_runs(plan: Plan, blank: Outcome, request: Request, seeds: int) -> PlannedRuns:
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
            theirs = known.value(planned.stands_for or row, planned.column)
            entries.append(Entry(row, planned.column, values, theirs))
    order = list(dict.fromkeys(entry.row for entry in entries))
    return sorted(entries, key=lambda entry: order.index(entry.row))


def _stand_ins(plan: Plan, name: str) -> list[str]:
    """Which of the paper's rows stand beside rows with other names."""
    known = published(name).values
    pairs = {
        row: entry.stands_for
        for entry in plan.entries
        for row, _ in entry.readings
        if entry.stands_for in known and entry.stands_for != row
    }
    return [
        f"The paper's values for {row} are those of its {theirs}." for row, theirs in pairs.items()
    ]


def _facts(trained: Trained) -> list[str]:
    return [*_memorization(trained), *_last_models(trained)]


def _memorization(trained: Trained) -> list[str]:
    """How well the base optimizer learns its training labels by heart, row by row."""
    found: dict[str, list[float]] = {}
    for planned, _, result in trained:
        if planned.run.method in BASE_NAMES and result.train_accuracy is not None:
            found.setdefault(planned.readings[0][0], []).append(result.train_accuracy)
    parts = [f"{row}: {statistics.fmean(values):.1f} %" for row, values in found.items()]
    what = "Training labels that the base optimizer's last model gives back, mean over seeds"
    return [f"{what}: {'; '.join(parts)}."] if parts else []


def _last_models(trained: Trained) -> list[str]:
    """What the last models come to, where those with the best validation score are reported."""
    found: dict[str, dict[str, list[float]]] = {}
    for planned, _, result in trained:
        if planned.run.select == "best":
            row, metric = planned.readings[0]
            values = found.setdefault(row, {}).setdefault(planned.column, [])
            values.append(result.test_last[metric])
    parts = [
        f"{row}: {', '.join(f'{name} {statistics.fmean(v):.2f}' for name, v in columns.items())}"
        for row, columns in found.items()
    ]
    what = "Models are those with the best validation score. The last ones, mean over seeds"
    return [f"{what}: {'; '.join(parts)}."] if parts else []


def time_spent(folders: Iterable[Path], tuned: Mapping[str, Tuned], request: Request) -> str:
    """The hours of all runs and trials, and how many of them other experiments made."""
    trials = _trial_folders(tuned, request)
    runs = [(folder, line_of(folder)) for folder in [*folders, *trials]]
    hours = {folder: core_hours_of(line) for folder, line in runs}
    shared = [folder for folder, line in runs if "made_as" in line]
    text = f"Core-hours: {sum(hours.values()):.2f} for {len(runs) - len(trials)} runs"
    text += f" and {len(trials)} of tuning" if trials else ""
    if shared:
        text += f"; {sum(hours[f] for f in shared):.2f} of them for {len(shared)} runs shared with "
        text += "other tables"
    return f"{text}."


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
    every = [*folders, *_trial_folders(tuned, request)]
    return Conditions.merged(RunFolder(folder).conditions() for folder in every)


def _trial_folders(tuned: Mapping[str, Tuned], request: Request) -> list[Path]:
    return [request.folder(f"tuning-{n}") / run for n, t in tuned.items() for run in t.scores]
