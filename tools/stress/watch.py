"""What happens inside a rank of a trial: marking the phase, knocking, saying where it ended."""

from __future__ import annotations

import hashlib
import json
import mmap
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from sampa.batches import tensors_in
from sampa.execution.parallel.groups import Groups
from sampa.execution.parallel.shared_memory import SharedMemory
from sampa.lab.training import checkpoint
from sampa.lab.training.loop import Trainer
from sampa.lab.training.run import Result
from sampa.lab.training.session import Interrupted
from sampa.optimizer import SharpnessAware

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


class Marks:
    """One byte a rank in memory that outlives it."""

    def __init__(self, file: Path) -> None:
        with file.open("rb+") as handle:
            self._memory = mmap.mmap(handle.fileno(), 0)

    @staticmethod
    def create(file: Path, world: int) -> Marks:
        file.write_bytes(bytes(world))
        return Marks(file)

    def write(self, rank: int, phase: str) -> None:
        self._memory[rank] = PHASES.index(phase)

    def read(self, rank: int) -> str:
        return PHASES[self._memory[rank]]


@dataclass
class Watch:
    """Marks the phase of this rank, and knocks when the one comes that a trial is about."""

    rank: int
    marks: Marks
    blow: Blow | None
    knocks: Connection
    phase: str = ""
    seen: int = 0

    def enter(self, phase: str) -> str:
        """Change to a phase; the one before it."""
        before, self.phase = self.phase, phase
        self.marks.write(self.rank, phase)
        if self.blow is not None and phase == self.blow.phase and before != phase:
            self.seen += 1
            if self.rank == self.blow.ranks[0] and self.seen == self.blow.occurrence:
                self.knocks.send_bytes(b"now")
        return before

    def around(self, owner: Any, name: str, phase: str) -> None:
        """Have a function mark its phase while it runs, in this process for good."""
        original: Callable[..., Any] = getattr(owner, name)

        def marked(*args: Any, **kwargs: Any) -> Any:
            if self.phase == "start" and phase != "resume":  # steps on a toy, to count probes
                return original(*args, **kwargs)
            before = self.enter(phase)
            try:
                return original(*args, **kwargs)
            finally:
                self.enter("between" if before == "start" else before)

        setattr(owner, name, marked)

    def mark_phases(self) -> None:
        """Have a run mark every phase, in this process for good."""
        self.around(Trainer, "_resume", "resume")
        self.around(SharpnessAware, "step", "step")
        self.around(Groups, "wait", "exchange")
        self.around(SharedMemory, "wait", "exchange")
        self.around(Trainer, "_evaluate", "evaluation")
        self.around(checkpoint, "save", "save")
        self.around(checkpoint, "prune", "prune")


def report_place(file: Path) -> None:
    """Write down where this rank's loop ends, well or by request, in this process for good."""
    original = Trainer.fit

    def fit(self: Trainer) -> Result:
        try:
            result = original(self)
        except Interrupted:
            file.write_text(json.dumps(_place(self)))
            raise
        file.write_text(json.dumps(_place(self)))
        return result

    Trainer.fit = fit


def _place(trainer: Trainer) -> dict[str, Any]:
    """Position, and digests of what no file holds: the held batch, the generator, all weights."""
    held = [t.numpy().tobytes() for t in tensors_in(trainer.optimizer._carried.held_batch)]
    return {
        "position": trainer.state.position,
        "held_batch": _digest(held),
        "generator": _digest([torch.get_rng_state().numpy().tobytes()]),
        "weights": _digest([t.numpy().tobytes() for t in trainer.model.state_dict().values()]),
    }


def _digest(parts: list[bytes]) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
