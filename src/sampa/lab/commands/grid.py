"""Runs of a grid, each as `sampa train` would make it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from sampa.lab.commands.arguments import Grid, read_arguments
from sampa.lab.commands.train import possible_run
from sampa.lab.training.jobs import Job, threads_each


def train_options(recipe: str, own: Sequence[str], grid: Grid) -> list[str]:
    """The options of `sampa train` that decide the result of one of the runs."""
    given = (("--data", grid.data), ("--model", grid.model))
    named = [part for option, value in given if value for part in (option, value)]
    return [recipe, *own, *named, *shlex.split(grid.extra)]


def grid_job(
    name: str, recipe: str, own: Sequence[str], folder: Path, grid: Grid, *, settled: bool = False
) -> Job:
    """One run of a grid, in its folder.

    Args:
        name: What the user is told of it.
        recipe: Of all runs.
        own: The options of `sampa train` in which it differs from the others.
        folder: Where it is made.
        grid: What all runs have in common.
        settled: Whether a run that diverged is done.
    """
    options = [
        *train_options(recipe, own, grid),
        *("--out", str(folder), "--resume", "--devices", str(grid.devices)),
        *threads_each(grid.jobs, grid.devices),
        *(("--data-dir", str(grid.data_dir)) if grid.data_dir else ()),
    ]
    run = possible_run(read_arguments("train", options))
    command = ["-m", "sampa", "train", *options]
    return Job(name, {folder: run}, lambda: command, settled_by_divergence=settled)
