"""What the training loop costs beyond a bare loop of forward, backward and step.

Both train the same model on the same batches with SGD, in turns (A, B, A, B, ...) of some steps, in
one process with one thread; the result is the median of the paired ratios.

    python tools/loop_overhead.py cifar10-cpu --json results/train/loop-overhead.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch

from sampa.lab.conditions import Conditions
from sampa.lab.results.summary import quartiles
from sampa.lab.results.table import median
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.loop import Trainer
from sampa.lab.training.method import checked_method
from sampa.lab.training.recipes import find_recipe
from sampa.lab.training.run import Run
from sampa.lab.training.session import Clock, Settings


def trainer(run: Run, out: str) -> Trainer:
    return Trainer(run, RunFolder(Path(out)), Settings(quiet=True), checked_method(run))


def bare_steps(made: Trainer, first: int, count: int) -> None:
    """Forward, backward and step, with nothing around them."""
    for position in range(first, first + count):
        batch = made.batch(position)
        loss = made.task.loss(made.model, batch).value
        assert loss is not None
        made.optimizer.base.zero_grad()
        loss.backward()
        made.optimizer.base.step()


def loop_steps(made: Trainer, first: int, count: int) -> None:
    """The same steps as the training loop makes them."""
    with made.display(first + count) as display:
        clock = Clock()
        for position in range(first, first + count):
            made.train_batch(position, clock, display)


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("recipe", help="such as cifar10-cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=4, help="of each kind in a round")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    run = find_recipe(arguments.recipe).changed(method="sgd")
    with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
        bare, looped = trainer(run, a), trainer(run, b)
        ratios = []
        for turn in range(arguments.rounds + 1):
            first = turn * arguments.steps
            plain = seconds(lambda first=first: bare_steps(bare, first, arguments.steps))
            ours = seconds(lambda first=first: loop_steps(looped, first, arguments.steps))
            ratios.append(ours / plain)
    found = quartiles(ratios[1:])  # the first round warms up
    result = {
        "recipe": run.name,
        "loop/bare": asdict(found),
        "rounds": arguments.rounds,
        "steps_per_round": arguments.steps,
        "conditions": Conditions.now().values,
    }
    print(f"{run.name}: loop / bare {median(found, 4).text}")
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
