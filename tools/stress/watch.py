"""What happens inside a rank of a trial: marking the phase, knocking, saying where it ended."""

from __future__ import annotations

import hashlib
import json
import random
import signal
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from sampa.batches import tensors_in
from sampa.execution.parallel.groups import Groups
from sampa.execution.parallel.shared_memory import SharedMemory
from sampa.lab.training import checkpoint
from sampa.lab.training.loop import Trainer
from sampa.optimizer import SharpnessAware
from sampa.vectors.vector import local

PHASES = ("start", "resume", "step", "exchange", "evaluation", "save", "prune", "between")


@dataclass(frozen=True)
class Blow:
    """A signal to some ranks, a while after one of them entered a phase for the n-th time.

    Attributes:
        phase: Which, of `PHASES`.
        occurrence: Counted from 1.
        delay: Seconds from there to the signal.
        ranks: Who is hit; the first of them is the one that is watched.
        number: The signal.
    """

    phase: str
    occurrence: int
    delay: float
    ranks: tuple[int, ...]
    number: int = signal.SIGKILL


def draw_blow(
    rng: random.Random,
    phases: Sequence[str],
    ranks: Sequence[tuple[int, ...]],
    most: Mapping[str, int],
    delays: Mapping[str, float],
    number: int = signal.SIGKILL,
    least: int = 1,
    savers: int = 1,
) -> Blow:
    """A blow at random; only the first ranks save, and the first prunes: the ones to watch then.

    Args:
        rng: Where the randomness comes from.
        phases: To choose from.
        ranks: To choose from.
        most: How often a phase comes; the entry "" is for all others.
        delays: How long it lasts, in seconds; likewise.
        number: The signal.
        least: The first time of a phase that may be chosen.
        savers: How many ranks save.
    """
    phase = rng.choice(phases)
    watched = {"save": savers, "prune": 1}.get(phase)
    if watched is not None:
        ranks = [victims for victims in ranks if victims[0] < watched]
    occurrence = rng.randint(least, most.get(phase, most[""]))
    delay = rng.uniform(0, delays.get(phase, delays[""]))
    return Blow(phase, occurrence, delay, rng.choice(ranks), number)


@dataclass
class Watch:
    """Marks the phase of this rank, and knocks when the one comes that a trial is about.

    Attributes:
        marks: The phase of each rank by its number, in memory that outlives them.
    """

    rank: int
    marks: MutableSequence[int]
    blow: Blow | None
    knocks: Connection
    phase: str = ""
    seen: int = 0

    def enter(self, phase: str) -> str:
        """Change to a phase; the one before it."""
        before, self.phase = self.phase, phase
        self.marks[self.rank] = PHASES.index(phase)
        if self.blow is not None and phase == self.blow.phase and before != phase:
            self.seen += 1
            if self.rank == self.blow.ranks[0] and self.seen == self.blow.occurrence:
                self.knocks.send_bytes(b"now")
        return before

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Mark a phase inside the block."""
        if self.phase == "start" and phase != "resume":  # what it exchanges is part of it
            yield
            return
        before = self.enter(phase)
        try:
            yield
        finally:
            self.enter("between" if before == "start" else before)

    def mark_phases(self) -> None:
        """Have a run mark every phase, in this process for good."""
        for owner, name, phase in (
            (Trainer, "_resume", "resume"),
            (SharpnessAware, "step", "step"),
            (Groups, "wait", "exchange"),
            (SharedMemory, "wait", "exchange"),
            (Trainer, "_evaluate", "evaluation"),
            (checkpoint, "save", "save"),
            (checkpoint, "prune", "prune"),
        ):
            wrap(owner, name, partial(self.during, phase))


def wrap(owner: Any, name: str, context: Callable[[], AbstractContextManager[None]]) -> None:
    """Have a function run inside a context, in this process for good."""
    original: Callable[..., Any] = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with context():
            return original(*args, **kwargs)

    setattr(owner, name, wrapped)


def report_place(file: Path) -> None:
    """Write down where this rank's loop ends, in this process for good."""
    original = Trainer.fit

    def fit(self: Trainer) -> Any:
        try:
            return original(self)
        finally:
            # At once: a rank may be killed while it writes.
            written = file.with_suffix(".tmp")
            written.write_text(json.dumps(_place(self)))
            written.replace(file)

    Trainer.fit = fit


def _place(trainer: Trainer) -> dict[str, Any]:
    """Position, and digests of what no file holds: the held batch, the generator, all weights."""
    held = [t.numpy().tobytes() for t in tensors_in(trainer.optimizer._carried.held_batch)]
    weights = [t.detach() for t in trainer.model.state_dict().values()]
    return {
        "position": trainer.state.position,
        "held_batch": _digest(held),
        "generator": _digest([torch.get_rng_state().numpy().tobytes()]),
        "weights": _digest([t.numpy().tobytes() for t in local(weights)]),
    }


def _digest(parts: list[bytes]) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
