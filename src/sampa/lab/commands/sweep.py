"""`sampa sweep`: which ρ, and which λ, on validation data."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from sampa.catalog import ALIASES, METHODS, find_method
from sampa.lab.commands.arguments import Grid, SweepArguments
from sampa.lab.commands.grid import grid_job, train_options
from sampa.lab.commands.train import default_folder
from sampa.lab.options import numbers
from sampa.lab.results.fitted import Fitted
from sampa.lab.results.sweep import Point, Tried, at_edge, best_of, in_words, points_of, sweep_table
from sampa.lab.results.table import Table
from sampa.lab.terminal import say
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.jobs import Job, Jobs
from sampa.lab.training.method import method_options
from sampa.lab.training.recipes import recipe_of
from sampa.lab.training.run import Run
from sampa.messages import WrongUsage, wrong_usage


def main(arguments: SweepArguments) -> int:
    with wrong_usage():
        run = recipe_of(arguments.recipe).changed(method=arguments.method)
        out = arguments.out or Path("sweeps") / default_folder(run).parent.relative_to("runs")
    values = {"rho": numbers(arguments.rho), "lam": numbers(arguments.lam)}
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    points, grid = points_of(values), arguments.grid
    if not points[0]:
        raise WrongUsage("--rho or --lam must have values to try, got none")
    trials = {
        (number, seed): _job(arguments.recipe, run.method, point, seed, out, grid)
        for seed in seeds
        for number, point in enumerate(points)
    }
    run = _judged_on_validation(next(iter(trials.values())))
    jobs = Jobs()
    jobs.run_all(list(trials.values()), grid.jobs, grid.devices)
    tried = [_tried(p, {seed: trials[i, seed] for seed in seeds}) for i, p in enumerate(points)]
    if any(t.scores for t in tried):
        Console().print(Fitted(_table(run, tried)))
    if jobs.asked:
        say("sampa sweep: stopped; the same command goes on", file=sys.stderr)
        return 128 + jobs.asked[0]
    failed = sum(len(seeds) - len(t.scores) for t in tried)
    best = None if failed else best_of(tried)
    if best is None:
        why = f"{failed} of {len(trials)} runs failed" if failed else "every point diverged"
        say(f"sampa sweep: nothing is chosen, {why}", file=sys.stderr)
        return 1
    say(f"best: {in_words(best.point)}")
    for sentence in at_edge(best.point, values):
        say(f"warning: {sentence}")
    say(f"to train with it: {_command(arguments.recipe, run.method, best.point, grid)}")
    say(f"in Python: {in_python(run.changed(**best.point))}")
    return 0


def _job(recipe: str, method: str, point: Point, seed: int, out: Path, grid: Grid) -> Job:
    folder = out / "-".join(f"{name}-{value:g}" for name, value in point.items()) / f"seed-{seed}"
    own = [*_options(method, point), "--seed", str(seed)]
    name = f"{method} {in_words(point)} seed {seed}"
    return grid_job(name, recipe, own, folder, grid, settled=True)


def _options(method: str, point: Point) -> list[str]:
    swept = [part for name, value in point.items() for part in (f"--{name}", f"{value:g}")]
    return ["--method", method, *swept]


def _judged_on_validation(job: Job) -> Run:
    """The run of a job, if it holds data back.

    Raises:
        WrongUsage: If it does not.
    """
    (run,) = job.runs.values()
    if not run.data.validation:
        raise WrongUsage(
            f"{run.name} must hold data back to choose by (validation > 0 in its data), got none; "
            "test data is not for choosing"
        )
    return run


def _tried(point: Point, jobs: Mapping[int, Job]) -> Tried:
    """What came out at a point, by seed; a run that is neither done nor diverged is left out."""
    places = {seed: next(iter(job.runs.items())) for seed, job in jobs.items()}
    found = {seed: RunFolder(folder).result_of(run) for seed, (folder, run) in places.items()}
    results = {seed: result for seed, result in found.items() if result is not None}
    diverged = [
        seed
        for seed, (folder, run) in places.items()
        if seed not in results and RunFolder(folder).divergence_of(run) is not None
    ]
    return Tried(point, results, tuple(diverged))


def _table(run: Run, tried: Sequence[Tried]) -> Table:
    metrics = [metric for t in tried for result in t.results.values() for metric in result.test]
    notes = [run.data.noise_in_words()]
    if max(len(t.scores) for t in tried) == 1:
        notes.append("One seed: small differences may be chance; --seeds 3 tells more.")
    title = f"{run.name}, {run.method}"
    return sweep_table(title, metrics[0] if metrics else "score", tried, notes)


def _command(recipe: str, method: str, point: Point, grid: Grid) -> str:
    """The command that trains with a point of the grid."""
    options = train_options(recipe, _options(method, point), grid)
    devices = ["--devices", str(grid.devices)] if grid.devices > 1 else []
    data = ["--data-dir", str(grid.data_dir)] if grid.data_dir else []
    return shlex.join(["sampa", "train", *options, *devices, *data])


def in_python(run: Run) -> str:
    """The line that builds a run's optimizer."""
    factory, name = find_method(run.method), ALIASES.get(run.method, run.method)
    options = method_options(run, factory, total_steps=0)
    if isinstance(factory, partial) and name in METHODS:
        called = f"METHODS[{name!r}]"
    elif isinstance(factory, partial):  # SAMPa with the λ in its name
        options, called = {**factory.keywords, **options}, factory.func.__name__
    else:
        called = factory.__name__
    # A schedule over the run is for the user's loop to say.
    shown = {k: "..." if k == "total_steps" else repr(v) for k, v in options.items()}
    return f"sampa.{called}({', '.join(['base', *(f'{k}={v}' for k, v in shown.items())])})"
