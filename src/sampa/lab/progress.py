"""How far some work is: a bar with an estimate on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from sampa.lab.terminal import harmless

EVERY = 10.0  # seconds between the lines
NARROW, WIDE = 70, 100  # columns of a terminal: below, the bar is short; from there on, it is long


def columns(console: Console, *more: ProgressColumn) -> list[ProgressColumn]:
    """What fits into one line of the terminal: a name, the bar, counts, further columns, time."""
    width = console.width
    bar = 8 if width < NARROW else 16 if width < WIDE else 30
    counts = TextColumn("{task.completed:.0f}/{task.total:.0f}")
    return [TextColumn("{task.description}"), BarColumn(bar), counts, *more, TimeRemainingColumn()]


def short(text: str, width: int) -> str:
    """A name that leaves room for the bar: about a quarter of the line."""
    most = 12 if width < NARROW else width // 4
    plain = harmless(text)
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


class Bar:
    """Progress of work in equal parts, on stderr: what a command prints can be kept apart."""

    def __init__(self, label: str, total: int, *, shown: bool = True) -> None:
        self._console = Console(stderr=True, quiet=not shown, soft_wrap=True)
        self._label, self._total, self._done = harmless(label), total, 0
        self._began = self._told = time.monotonic()
        self._bar = Progress(
            *columns(self._console),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # else what goes to a file would not arrive there
        )
        described = escape(short(label, self._console.width))
        self._task = self._bar.add_task(described, total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, parts: int = 1) -> None:
        """After some parts are done."""
        self._done += parts
        self._bar.update(self._task, completed=self._done)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._told >= EVERY:
            self._told = now
            left = clock((now - self._began) / max(self._done, 1) * (self._total - self._done))
            self.say(f"{self._label}: {self._done} of {self._total}, about {left} left")

    def describe(self, label: str) -> None:
        """What is done now."""
        self._label = harmless(label)
        self._bar.update(self._task, description=escape(short(label, self._console.width)))

    def expect(self, total: int) -> None:
        """When it turns out how many parts there are."""
        self._total = total
        self._bar.update(self._task, total=total)

    def say(self, text: str) -> None:
        """A line that stays, above the bar."""
        self._console.print(harmless(text), highlight=False, markup=False)
