"""`sampa demo`: what the library does, in a minute or two on a laptop."""

from __future__ import annotations

import os
import sys

import torch
from rich.console import Console

from sampa.lab.bench.ranks import on_ranks
from sampa.lab.bench.result import paired_ratios
from sampa.lab.bench.rounds import measure_steps
from sampa.lab.bench.workloads import Workload
from sampa.lab.children import follow_parent
from sampa.lab.commands import report
from sampa.lab.commands.arguments import DemoArguments, ReportArguments
from sampa.lab.results.fitted import Fitted
from sampa.lab.terminal import say
from sampa.lab.training.launch import is_launched, launch, set_up_process
from sampa.lab.training.loop import train
from sampa.lab.training.method import branches_of, checked_method
from sampa.lab.training.ranks import is_first, wait_for_all
from sampa.lab.training.recipes import find_recipe
from sampa.lab.training.records import comparison, read_results
from sampa.lab.training.session import Interrupted, Settings

DEMO_METHODS = ("sgd", "sam", "sampa")
TIMED = Workload("resnet20", 8)  # the steps of a net for digits are mostly overhead
DEMO_ROUNDS = 20


def main(arguments: DemoArguments) -> int:
    seeds, out = range(arguments.seeds), arguments.out
    run = find_recipe("digits-demo-cpu")
    if arguments.devices > 1 and not is_launched():
        for method in DEMO_METHODS:  # before anything is started
            chosen = run.changed(method=method)
            branches_of(chosen, checked_method(chosen), arguments.devices)
        code = launch(arguments.devices, sys.argv[1:])
        if code == 0:
            _show_times()
        return code
    if is_launched():
        follow_parent(os.getppid())  # torchrun, which tells nothing
    set_up_process()
    for seed, method in [(seed, method) for seed in seeds for method in DEMO_METHODS]:
        settings = Settings(device="cpu", resume=True, quiet=True)  # two processes, on any machine
        try:
            chosen = run.changed(method=method, seed=seed)
            result = train(chosen, out / method / f"seed-{seed}", settings)
        except Interrupted as stopped:
            if is_first():
                say(f"{method} seed {seed}: {stopped}; the same command goes on")
            return 128 + stopped.signal_number
        if is_first():
            say(f"{method} seed {seed}: test accuracy {result.test['accuracy']:.2f}")
        wait_for_all()
    if is_first():
        results = read_results(out, DEMO_METHODS, list(seeds))
        Console().print(Fitted(comparison(run.name, results, run.about)))
        report.main(ReportArguments((out,), out / "report.html"))
    return 0


def _show_times() -> None:
    """The point of SAMPa, measured here: SAM's step on one process against SAMPa's on two."""
    devices = [torch.device("cpu")] * 2
    seconds, _ = on_ranks(measure_steps, devices, TIMED, ("sam", "sampa"), DEMO_ROUNDS)[0]
    ratio = paired_ratios(seconds)["sam/sampa"]
    say(
        f"time: SAM's step on one process takes {ratio.median:.2f} times as long as SAMPa's on two "
        f"({TIMED}; quartiles {ratio.low:.2f} to {ratio.high:.2f} of {DEMO_ROUNDS} turns each)"
    )
