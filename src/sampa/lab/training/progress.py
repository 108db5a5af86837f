"""What a run shows while it works: a bar on a terminal, plain lines elsewhere; on one rank."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TextColumn

from sampa.lab.progress import NARROW, WIDE, clock, columns, short
from sampa.lab.terminal import harmless
from sampa.lab.training.folder import EpochLine


class Display:
    """Progress of one run."""

    def __init__(self, total: int, start: int, label: str, *, shown: bool) -> None:
        self._console = Console(quiet=not shown, soft_wrap=True)
        self._total, self._start = total, start
        self._began = time.monotonic()
        self._bar = Progress(
            *columns(self._console, TextColumn("{task.fields[numbers]}")),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task(
            escape(short(label, self._console.width)), total=total, completed=start, numbers=""
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, loss: float, accuracy: float, lr: float, rate: float) -> None:
        """After a step: running numbers on the bar."""
        numbers = [f"loss {loss:.3g}", f"acc {accuracy:.1f}%", f"lr {lr:.4f}", f"{rate:.0f}/s"]
        width = self._console.width
        numbers = " ".join(numbers[: 1 if width < NARROW else 2 if width < WIDE else 4])
        self._bar.update(self._task, advance=1, numbers=numbers)

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(harmless(text), highlight=False, markup=False)

    def eta(self, done: int) -> str:
        """How long the rest will take at the pace so far."""
        made = max(done - self._start, 1)
        left = (time.monotonic() - self._began) / made * (self._total - done)
        return clock(left)


def write_curves(folder: Path, epoch: int, line: EpochLine) -> None:
    """One epoch's numbers for TensorBoard."""
    from torch.utils.tensorboard.writer import SummaryWriter  # slow to import

    with SummaryWriter(folder, purge_step=epoch) as writer:
        for name, value in line.items():
            if value is not None and name != "epoch":
                writer.add_scalar(name, value, epoch)
