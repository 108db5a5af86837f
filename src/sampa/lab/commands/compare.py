"""`sampa compare`: a grid of methods and seeds, and its table."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

from sampa.lab.commands.train import TrainArguments, configured
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.jobs import Jobs, threads_each
from sampa.lab.training.loop import checked_method
from sampa.lab.training.recipes import find_recipe
from sampa.lab.training.records import write_record
from sampa.lab.training.tables import comparison, read_grid
from sampa.messages import require


@dataclass(frozen=True)
class CompareArguments:
    """What `sampa compare` takes.

    Attributes:
        recipe: The experiment; `sampa train --list` shows them.
        methods: The methods to compare.
        seeds: How many seeds each.
        first_seed: The seeds are first_seed, first_seed + 1, ...
        jobs: Runs at the same time; each has its share of the cores, and GPUs of its own.
        devices: Processes a run.
        out: Folder of all runs (default: runs/RECIPE).
        data_dir: Where data sets are (default: the environment's SAMPA_DATA_DIR).
        extra: Further options of `sampa train` for every run, as one text:
            --extra="--epochs 3 --lr 0.1".
        record: Folder for results.json and README.md: all numbers with their conditions.
    """

    recipe: Annotated[Positional[str], arg(metavar="RECIPE")]
    methods: tuple[str, ...] = ("sgd", "sam", "sampa")
    seeds: int = 3
    first_seed: int = 0
    jobs: int = 1
    devices: int = 1
    out: Path | None = None
    data_dir: Path | None = None
    extra: str = ""
    record: Path | None = None


def compare(arguments: Annotated[CompareArguments, arg(name="")]) -> int:
    """Run every method with every seed, skip what is done, and print mean ± std.

    Examples:
        sampa compare digits-cpu --methods sgd sam sampa --seeds 3
        sampa compare cifar10-cpu --methods sgd sam sampa-0 sampa --seeds 5 --jobs 2
        sampa compare cifar10-resnet56 --methods sam sampa --devices 2
        sampa compare digits-cpu --extra="--epochs 3 --lr 0.1"

    Calling it again goes on where it stopped. Exit codes: 0 all runs are done, 1 some failed, 2
    wrong usage, 130 and 143 stopped by Ctrl-C or SIGTERM after the running ones saved.

    Args:
        arguments: The grid.
    """
    require("seeds", arguments.seeds, arguments.seeds >= 1, ">= 1")
    require("jobs", arguments.jobs, arguments.jobs >= 1, ">= 1")
    run = find_recipe(arguments.recipe)
    out = arguments.out or Path("runs") / run.name
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    cells = [
        Cell(method, seed, out / method / f"seed-{seed}", arguments)
        for seed in seeds
        for method in arguments.methods
    ]
    jobs = Jobs()
    codes = jobs.carry_out_all(cells, arguments.jobs, arguments.devices)
    grid = read_grid(out, arguments.methods, list(seeds))
    Console().print(comparison(run, grid) if grid else "no run is done")
    if arguments.record is not None and grid:
        write_record(arguments.record, run, out, grid, ["sampa", *_without_paths(sys.argv[1:])])
    if jobs.asked:
        print("stopped after saving; the same command goes on")
        return 128 + jobs.asked[0]
    return int(any(codes))


def _without_paths(arguments: list[str]) -> list[str]:
    """A command line to repeat elsewhere: what is this machine's own is left out."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if not skip and argument.split("=")[0] not in ("--out", "--data-dir"):
            kept.append(argument)
        skip = argument in ("--out", "--data-dir")
    return kept


@dataclass(frozen=True)
class Cell:
    """One run of the grid."""

    method: str
    seed: int
    folder: Path
    grid: CompareArguments

    def __str__(self) -> str:
        return f"{self.method} seed {self.seed}"

    def is_done(self) -> bool:
        """Whether its result is there.

        Raises:
            ValueError: If the run is not possible, or the folder holds another.
        """
        given = tyro.cli(TrainArguments, prog="sampa train", args=self.options())
        run = configured(given)
        checked_method(run)
        return RunFolder(self.folder).result_of(run) is not None

    def arguments(self) -> list[str]:
        return ["-m", "sampa", "train", *self.options()]

    def options(self) -> list[str]:
        """Of `sampa train`."""
        grid = self.grid
        return [
            *(grid.recipe, "--method", self.method, "--seed", str(self.seed)),
            *("--out", str(self.folder), "--resume", "--devices", str(grid.devices)),
            *threads_each(grid.jobs, grid.devices),
            *(("--data-dir", str(grid.data_dir)) if grid.data_dir else ()),
            *shlex.split(grid.extra),
        ]
