"""Ctrl-C at random instants of a step, which must be made as a whole or not at all.

    python -m tools.stress.interrupts --trials 200 --json results/reliability/interrupts.json

Each trial trains a small network with a method and a base optimizer drawn at random, while another
process sends SIGINT a hundred times, each time somewhere in a step or just around it. After each,
everything that a step can change is compared with an undisturbed twin: it must be as before the
step or as after it, and nothing else.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

import sampa
from tests.problems import BASES, same_bits
from tests.variants import ACTIVE, BATCHES, loss_of, net
from tools.stress.records import Summary, Trial, main, run_trials

INTERRUPTS = 100  # in each trial
PATIENCE = 600.0  # seconds; a busy machine may stop all processes for minutes
SENDER = """
import os, signal, sys, time
for line in sys.stdin:
    time.sleep(float(line))
    os.kill(os.getppid(), signal.SIGINT)
"""


class Training:
    """A run of which everything can be seen."""

    def __init__(self, method: str, base: str, with_model: bool) -> None:
        self.model: nn.Module = net()
        executor = sampa.Serial(self.model) if with_model else None
        made = BASES[base](self.model.parameters())
        self.optimizer = ACTIVE[method](made, executor=executor, seed=0)
        self.optimizer.set_epoch(6)
        self.step(0)

    def step(self, number: int) -> None:
        self.optimizer.step(loss_of(self.model), BATCHES[number % len(BATCHES)])

    def everything(self) -> Any:
        """All that a step changes, for good or for a while."""
        weights = list(self.model.parameters())
        return [
            {name: t.clone() for name, t in self.model.state_dict().items()},
            [(p.requires_grad, p.grad is None) for p in weights],
            [layer.training for layer in self.model.modules()],
            dict(_leaves(self.optimizer.state_dict())),
            len(torch_module._global_forward_pre_hooks),
            torch.get_rng_state(),
        ]


def _leaves(state: Any, path: str = "") -> list[tuple[str, Any]]:
    """The tensors and numbers of a state dictionary, as they are now."""
    if isinstance(state, dict):
        return [found for k, v in state.items() for found in _leaves(v, f"{path}.{k}")]
    if isinstance(state, list | tuple):
        return [found for i, v in enumerate(state) for found in _leaves(v, f"{path}.{i}")]
    return [(path, state.clone() if isinstance(state, torch.Tensor) else state)]


class Sender:
    """Another process, which presses Ctrl-C after a while."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", SENDER]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)

    def after(self, seconds: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        with self._process as process:  # closes the pipe, and waits
            process.kill()


def is_interrupted(training: Training, number: int, sender: Sender, delay: float) -> bool:
    """Make a step with a Ctrl-C; whether that came before the step had returned."""
    has_returned = False
    try:
        sender.after(delay)
        training.step(number)
        has_returned = True
        latest = time.monotonic() + PATIENCE
        while time.monotonic() < latest:
            # In short naps: a signal that comes just before one is only seen at its end.
            time.sleep(0.01)
    except KeyboardInterrupt:
        return not has_returned
    raise RuntimeError("no signal came")


def drawn(rng: random.Random) -> tuple[str, str]:
    """A method and a base optimizer that it takes."""
    while True:
        method, base = rng.choice(sorted(ACTIVE)), rng.choice(sorted(BASES))
        training = Training(method, base, with_model=False)
        try:
            training.step(1)
        except ValueError:  # Momentum-SAM needs one with momentum
            continue
        return method, base


def trial(number: int, seed: int, folder: Path) -> Trial:
    """Interrupt a run a hundred times."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` has it ignored
    rng = random.Random(f"interrupts {seed} {number}")
    method, base = drawn(rng)
    with_model = rng.random() < 0.5
    disturbed, twin = (Training(method, base, with_model) for _ in range(2))
    inside, differing = 0, 0
    sender = Sender()
    try:
        seconds = 0.01  # of a step, about
        for step in range(1, INTERRUPTS + 1):
            before = twin.everything()
            began = time.perf_counter()
            twin.step(step)
            seconds = 0.8 * seconds + 0.2 * (time.perf_counter() - began)
            inside += is_interrupted(disturbed, step, sender, rng.uniform(0, 1.3 * seconds))
            found, after = disturbed.everything(), twin.everything()
            if same_bits(found, before) and not same_bits(before, after):
                disturbed.step(step)
            elif not same_bits(found, after):
                differing += 1
                break
    finally:
        sender.close()
    run = {"method": method, "base": base, "with_model": with_model}
    return {**run, "interrupts": INTERRUPTS, "inside": inside, "differing": differing}


def interrupts(trials: int, seed: int = 0, log: Path | None = None) -> Summary:
    """Carry out the trials."""
    outcomes = run_trials(
        "interrupts", trial, lambda t: not t["differing"], range(trials), seed, log
    )
    return {
        "trials": len(outcomes),
        "interrupts": sum(t["interrupts"] for t in outcomes),
        "inside_a_step": sum(t["inside"] for t in outcomes),
        "left_behind": sum(t["differing"] for t in outcomes),
        "methods": len({t["method"] for t in outcomes}),
    }


if __name__ == "__main__":
    sys.exit(main("interrupts", __doc__, 200, interrupts, lambda s: s["left_behind"] == 0))
