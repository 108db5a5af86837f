"""Plans: which runs an experiment is made of at a scale, and how they become a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from sampa.lab.training.run import Run

Scale = Literal["paper", "cpu", "smoke"]
SCALES: tuple[Scale, ...] = get_args(Scale)
AVERAGE = "Average"  # the row that is the mean of the others


@dataclass(frozen=True)
class Choice:
    """What tuning chose: the learning rate of all methods, and SAM's ρ."""

    lr: float
    rho: float


Choices = dict[str, Choice]
"""By the name of the tuning; what is missing was not tuned at that scale."""


@dataclass(frozen=True)
class Cell:
    """One entry of a table: the same run with several seeds.

    Attributes:
        column: Most often the method, by the paper's name.
        run: What is trained; the seeds come later.
        readings: The rows that are read from it, each with the test metric it takes.
    """

    column: str
    run: Run
    readings: tuple[tuple[str, str], ...]

    @property
    def key(self) -> str:
        """A folder's name."""
        text = f"{self.readings[0][0]} {self.column}".lower()
        return re.sub(r"[^a-z0-9.+]+", "-", text.replace("×", "x")).strip("-")


@dataclass(frozen=True)
class Plan:
    """An experiment at a scale.

    Attributes:
        about: Data, image size, network and epochs, for the heading.
        cells: In the order of the table.
        pairs: Which columns are compared on the same seeds: (column, baseline).
        average: Whether a row with the mean over the others is added.
    """

    about: str
    cells: tuple[Cell, ...]
    pairs: tuple[tuple[str, str], ...]
    average: bool = False


def cells(row: str, run: Run, methods: dict[str, str], metric: str = "accuracy") -> list[Cell]:
    """A row of a table: one run with several methods, by the paper's names of them."""
    readings = ((row, metric),)
    return [Cell(name, run.changed(method=m), readings) for name, m in methods.items()]


def chain(columns: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Each column against the first."""
    return tuple((column, columns[0]) for column in columns[1:])
