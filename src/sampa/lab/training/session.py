"""How a run is carried out, where it is, and how it is asked to stop."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tyro.conf import Suppress

from sampa.lab.options import Count, Folder, Seconds, options
from sampa.lab.training.divergence import Diverged

FLATNESS_RHO = 0.1  # of --flatness-every: one for all methods, whatever they train with


class Interrupted(Exception):
    """The run was asked to stop; it can be resumed from what is saved.

    Attributes:
        signal_number: Of the signal that asked.
        is_saved: Whether all that was done is on the disk, and was read back.
    """

    def __init__(self, signal_number: int, step: int, saved: int) -> None:
        self.signal_number, self.is_saved = signal_number, saved == step
        lost = "" if self.is_saved else f", the last checkpoint is of batch {saved}"
        super().__init__(f"stopped at batch {step}{lost}")


class StepFailed(RuntimeError):
    """A step that did not end well: on which rank, at which batch, and why."""

    def __init__(self, rank: int, position: int, error: Exception) -> None:
        super().__init__(f"rank {rank}, batch {position}: {type(error).__name__}: {error}")


@contextmanager
def step_errors(rank: int, position: int) -> Iterator[None]:
    """Put rank and batch in front of whatever goes wrong."""
    try:
        yield
    except (Interrupted, Diverged):  # they say all there is to say, and the same on all ranks
        raise
    except Exception as error:
        raise StepFailed(rank, position, error) from error


@options
@dataclass(frozen=True)
class Settings:
    """How a run is carried out; none of it changes the result.

    Attributes:
        data_dir: Where data sets are (default: the environment's SAMPA_DATA_DIR).
        resume: Go on with the run in that folder, or begin it where there is none.
        strict: With --resume: refuse conditions that may change the last bits (torch version,
            threads, processor, number of shards) instead of warning.
        allow_changes: With --resume: accept other hyper-parameters than the run began with.
        limit_steps: Stop after this many batches, to try things out.
        save_every: Batches between checkpoints (default: once an epoch).
        timeout: Seconds after which a rank gives up on the others.
        flatness_every: Epochs between measurements of sharpness and curvature at the weights, the
            same for all methods (default: none).
        tensorboard: Also write TensorBoard curves.
        shard: Cut weights, gradients and optimizer state over the processes of a branch (FSDP2),
            for models that are too large for a device; --resume goes on with any number of them.
        device: Such as cpu or cuda (default: the accelerator of this machine, or else the CPU).
        prefetch: Make the next batch while a step runs (default: on an accelerator); no option of
            the command line.
        keep: How many checkpoints stay; no option of the command line.
        quiet: Say nothing while it works; no option of the command line.
    """

    data_dir: Folder | None = None
    resume: bool = False
    strict: bool = False
    allow_changes: bool = False
    limit_steps: Count | None = None
    save_every: Count | None = None
    timeout: Seconds = 300.0
    flatness_every: Count | None = None
    tensorboard: bool = False
    shard: bool = False
    device: str | None = None
    prefetch: Suppress[bool | None] = None
    keep: Suppress[int] = 2
    quiet: Suppress[bool] = False


@dataclass(frozen=True)
class LoopState:
    """Where a run is: saved with each checkpoint, and all that the loop itself remembers.

    Attributes:
        position: Batches seen since the beginning.
        updates: Updates made of them.
        loss_sum: Sum of the losses of this epoch.
        first_loss: The first of the run; NaN before it.
        best_score: The best validation score ...
        best_epoch: ... and its epoch.
        seconds: Time spent, over all sessions.
        core_seconds: Processor time of the first process: waiting does not count.
    """

    position: int = 0
    updates: int = 0
    loss_sum: float = 0.0
    first_loss: float = float("nan")
    best_score: float = float("-inf")
    best_epoch: int = -1
    seconds: float = 0.0
    core_seconds: float = 0.0

    def after_lap(self, clock: Clock) -> LoopState:
        """The same, with the time since the clock's last lap."""
        seconds, core_seconds = clock.lap()
        return replace(
            self,
            seconds=self.seconds + seconds,
            core_seconds=self.core_seconds + core_seconds,
        )


@dataclass(frozen=True)
class SavedLoop:
    """The loop's part of a checkpoint.

    Attributes:
        place: Where the run is.
        metrics_size: Bytes of metrics.jsonl that were written by then.
        data_ranks: Parts that each batch is cut into.
        sharded: Whether the weights are, too.
    """

    place: LoopState
    metrics_size: int
    data_ranks: int
    sharded: bool = False

    @staticmethod
    def from_json(values: dict[str, Any]) -> SavedLoop:
        saved = values["place"]
        # Checkpoints of earlier versions know only what went by on the clock.
        place = LoopState(**{"core_seconds": saved.get("seconds", 0.0), **saved})
        return replace(SavedLoop(**values), place=place)


@dataclass
class Clock:
    """Where the time of an epoch went."""

    began: float = field(default_factory=time.perf_counter)
    data: float = 0.0
    steps: float = 0.0

    def __post_init__(self) -> None:
        self._lap_began = self.began, time.process_time()

    @property
    def data_share(self) -> float:
        """Percent of the time that went by in waiting for data."""
        return 100 * self.data / max(self.data + self.steps, 1e-9)

    def lap(self) -> tuple[float, float]:
        """Seconds since the last lap, and those of the processor."""
        (began, core_began), now = self._lap_began, (time.perf_counter(), time.process_time())
        self._lap_began = now
        return now[0] - began, now[1] - core_began

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        setattr(self, part, getattr(self, part) + time.perf_counter() - start)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Notice SIGINT and SIGTERM instead of dying of them; a second SIGINT does kill."""
    asked: list[int] = []

    def notice(number: int, _frame: Any) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)

    with on_stop(notice):
        yield asked


@contextmanager
def on_stop(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Have SIGINT and SIGTERM call a function for a while."""
    before = {s: signal.signal(s, handler) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)
