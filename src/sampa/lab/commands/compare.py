"""`sampa compare`: a grid of methods and seeds, and its table."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from sampa.lab.commands.arguments import CompareArguments
from sampa.lab.commands.grid import grid_job
from sampa.lab.conditions import Conditions
from sampa.lab.results.fitted import Fitted
from sampa.lab.terminal import say
from sampa.lab.training.jobs import Jobs
from sampa.lab.training.recipes import recipe_of
from sampa.lab.training.records import comparison, conditions_of_grid, read_results, write_record
from sampa.messages import wrong_usage


def main(arguments: CompareArguments) -> int:
    with wrong_usage():
        run = recipe_of(arguments.recipe)
    out = arguments.out or Path("runs") / run.name
    grid, first = arguments.grid, arguments.first_seed
    seeds = range(first, first + arguments.seeds)
    runs = [
        grid_job(
            f"{method} seed {seed}",
            arguments.recipe,
            ["--method", method, "--seed", str(seed)],
            out / method / f"seed-{seed}",
            grid,
        )
        for seed in seeds
        for method in arguments.methods
    ]
    if arguments.record is not None:  # before hours of work
        Conditions.now().require_committed("this command", allow_dirty=arguments.allow_dirty)
    jobs = Jobs()
    codes = jobs.run_all(runs, grid.jobs, grid.devices)
    results = read_results(out, arguments.methods, list(seeds))
    table = comparison(run.name, results, run.about) if results else None
    if table or not jobs.asked:
        Console().print(Fitted(table) if table else "no run is done")
    if arguments.record is not None and results:
        made = conditions_of_grid(out, results)
        what = f"runs in {out}, which were made before"
        made.require_committed(what, allow_dirty=arguments.allow_dirty)
        write_record(arguments.record, run, out, results, ["sampa", *without_paths(sys.argv[1:])])
    if jobs.asked:
        say("sampa compare: stopped; the same command goes on", file=sys.stderr)
        return 128 + jobs.asked[0]
    return int(any(codes))


def without_paths(arguments: list[str]) -> list[str]:
    """A command line to repeat elsewhere: what is this machine's own is left out."""
    own = ("--out", "--data-dir", "--json", "--html")
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if not skip and argument.split("=")[0] not in own:
            kept.append(argument)
        skip = argument in own
    return kept
