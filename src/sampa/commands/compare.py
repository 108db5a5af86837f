"""`sampa compare`: a grid of methods and seeds, and its table."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from sampa.checks import require
from sampa.names import find_method
from sampa.train.folder import RunFolder
from sampa.train.recipes import find_recipe
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
        extra: Further options of `sampa train` for every run, after `--extra`.
    """

    recipe: Positional[str]
    methods: tuple[str, ...] = ("sgd", "sam", "sampa")
    seeds: int = 3
    first_seed: int = 0
    jobs: int = 1
    devices: int = 1
    out: Path | None = None
    data_dir: Path | None = None
    extra: tuple[str, ...] = ()


def compare(arguments: Annotated[CompareArguments, arg(name="")]) -> int:
    """Run every method with every seed, skip what is done, and print mean ± std.

    Examples:
        sampa compare digits-cpu --methods sgd sam sampa --seeds 3
        sampa compare cifar10-cpu --methods sgd sam sampa-0 sampa --seeds 5 --jobs 2
        sampa compare cifar10-resnet56 --methods sam sampa --devices 2

    Calling it again goes on where it stopped.

    Args:
        arguments: The grid.
    """
    require("seeds", arguments.seeds, arguments.seeds >= 1, ">= 1")
    require("jobs", arguments.jobs, arguments.jobs >= 1, ">= 1")
    run = find_recipe(arguments.recipe)
    for method in arguments.methods:
        find_method(method)
    out = arguments.out or Path("runs") / run.name
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    cells = [(method, seed) for seed in seeds for method in arguments.methods]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        codes = list(pool.map(lambda cell: _carry_out(arguments, out, *cell), cells))
    grid = read_grid(out, arguments.methods, list(seeds))
    Console().print(comparison(run, grid))
    return max(codes)


def _carry_out(arguments: CompareArguments, out: Path, method: str, seed: int) -> int:
    """One cell of the grid, in a process of its own; 0 if it is done."""
    folder = out / method / f"seed-{seed}"
    if RunFolder(folder).read("result.json") is not None:
        print(f"{method} seed {seed}: done before")
        return 0
    cores = (os.cpu_count() or 1) // arguments.jobs
    command = [
        *(sys.executable, "-m", "sampa", "train", arguments.recipe),
        *("--method", method, "--seed", str(seed), "--out", str(folder), "--resume"),
        *("--devices", str(arguments.devices)),
        *("--threads", str(max(1, cores // arguments.devices))),
        *(("--data-dir", str(arguments.data_dir)) if arguments.data_dir else ()),
        *arguments.extra,
    ]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("a") as log:
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    print(f"{method} seed {seed}: {'done' if code == 0 else f'failed ({code}), see {log.name}'}")
    return code
