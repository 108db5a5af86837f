"""`sampa compare`: a grid of methods and seeds, and its table."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

from sampa.checks import require
from sampa.commands.train import TrainArguments, configured
from sampa.train.folder import RunFolder
from sampa.train.loop import checked_method
from sampa.train.recipes import find_recipe
from sampa.train.records import write_record
from sampa.train.tables import comparison, read_grid


@dataclass(frozen=True)
class CompareArguments:
    """What `sampa compare` takes.

    Attributes:
        recipe: The experiment; `sampa train --list` shows them.
        methods: The methods to compare.
        seeds: How many seeds each.
        first_seed: The seeds are first_seed, first_seed + 1, ...
        jobs: Runs at the same time; each has its share of the cores.
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
    done = [cell.is_done() for cell in cells]  # finds what is wrong before anything runs
    jobs = Jobs()
    with jobs.stopped_by_signals(), ThreadPoolExecutor(arguments.jobs) as pool:
        codes = list(pool.map(jobs.carry_out, cells, done))
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
        given = tyro.cli(TrainArguments, prog="sampa train", args=self.arguments()[1:])
        run = configured(given)
        checked_method(run)
        return RunFolder(self.folder).result_of(run) is not None

    def arguments(self) -> list[str]:
        """Of `sampa`."""
        grid = self.grid
        threads = max(1, (os.cpu_count() or 1) // grid.jobs // grid.devices)
        return [
            *("train", grid.recipe, "--method", self.method, "--seed", str(self.seed)),
            *("--out", str(self.folder), "--resume", "--devices", str(grid.devices)),
            *(() if os.environ.get("OMP_NUM_THREADS") else ("--threads", str(threads))),
            *(("--data-dir", str(grid.data_dir)) if grid.data_dir else ()),
            *shlex.split(grid.extra),
        ]


@dataclass
class Jobs:
    """Runs in processes of their own, which a signal stops after they saved.

    Attributes:
        asked: The signals that came.
        running: The processes at work.
    """

    asked: list[int] = field(default_factory=list)
    running: set[subprocess.Popen[bytes]] = field(default_factory=set)

    def carry_out(self, cell: Cell, is_done: bool) -> int:
        """Do what a cell lacks; the exit code, 0 if it is done."""
        if is_done or self.asked:
            print(f"{cell}: {'done before' if is_done else 'left for the next time'}", flush=True)
            return 0
        command = [sys.executable, "-m", "sampa", *cell.arguments()]
        cell.folder.mkdir(parents=True, exist_ok=True)
        log = cell.folder / "log.txt"
        # In a session of its own, a run hears of Ctrl-C from us alone, and once.
        with (
            log.open("a") as file,
            subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True) as process,
        ):
            self.running.add(process)
            if self.asked:
                process.terminate()
            code = process.wait()
            self.running.discard(process)
        outcome = "stopped" if self.asked else f"failed ({code}), see {log}"
        print(f"{cell}: {'done' if code == 0 else outcome}", flush=True)
        return code

    @contextmanager
    def stopped_by_signals(self) -> Iterator[None]:
        def stop(number: int, _frame: Any) -> None:
            self.asked.append(number)
            for process in tuple(self.running):
                process.terminate()

        before = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
