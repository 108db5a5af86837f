"""`sampa demo`: what the library does, in a minute or two on a laptop."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from sampa.lab.commands.report import report
from sampa.lab.training.launch import end_with_launcher, is_launched, launch, set_up_process
from sampa.lab.training.loop import Interrupted, Settings, train
from sampa.lab.training.ranks import is_first, wait_for_all
from sampa.lab.training.recipes import find_recipe
from sampa.lab.training.run import Run
from sampa.lab.training.tables import comparison, read_grid
from sampa.messages import require

METHODS = ("sgd", "sam", "sampa")


def demo(devices: int = 2, seeds: int = 3, out: Path = Path("runs/demo")) -> int:
    """Compare SGD, SAM and SAMPa-0.2 on digits with 40 % wrong labels, on two processes.

    The digits are embedded in scikit-learn: nothing is downloaded. SGD gets twice the epochs, as in
    the paper. What is done is not repeated; remove the folder to start again.

    Examples:
        sampa demo
        sampa demo --devices 1 --seeds 1

    Args:
        devices: Processes; SAMPa computes its two gradients on two of them.
        seeds: Runs of each method.
        out: Folder of the runs and of report.html.
    """
    require("seeds", seeds, seeds >= 1, ">= 1")
    if devices > 1 and not is_launched():
        return launch(devices, sys.argv[1:])
    if is_launched():
        end_with_launcher()
    set_up_process()
    run = find_recipe("digits-cpu")
    for seed in range(seeds):
        for method in METHODS:
            settings = Settings(out=out / method / f"seed-{seed}", resume=True, quiet=True)
            try:
                result = train(run.changed(method=method, seed=seed), settings)
            except Interrupted as stopped:
                if is_first():
                    print(f"{method} seed {seed}: {stopped}; the same command goes on")
                return 128 + stopped.signal_number
            if is_first():
                print(f"{method} seed {seed}: test accuracy {result['test']['accuracy']:.2f}")
            wait_for_all()
    if is_first():
        _show(run, out, list(range(seeds)))
    return 0


def _show(run: Run, out: Path, seeds: list[int]) -> None:
    Console().print(comparison(run, read_grid(out, METHODS, seeds)))
    report((out,), out / "report.html")
