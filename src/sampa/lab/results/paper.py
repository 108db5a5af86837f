"""The paper's own values, read from the one file that has them."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass, field, replace
from decimal import Decimal
from importlib import resources
from typing import Literal

Scale = Literal["paper", "cpu", "smoke"]
SCALES: dict[Scale, str] = {
    "paper": "the paper's settings",
    "cpu": "reduced to two CPU cores",
    "smoke": "a test",
}
"""What its experiments are carried out with."""


@dataclass(frozen=True)
class Value:
    """A published number, with its standard deviation if one is printed.

    Attributes:
        decimals: How many are printed, where that is known.
    """

    mean: float
    std: float | None = None
    decimals: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Published:
    """What the paper says about one experiment.

    Attributes:
        label: Of the table or figure in the paper's source.
        values: By row and column; empty for a figure without printed numbers.
        claim: What a figure is said to show.
        seeds: Independent executions, where the paper says how many.
        title: What it is, in one line of our own.
    """

    label: str
    values: dict[str, dict[str, Value]] = field(default_factory=dict)
    claim: str = ""
    seeds: int | None = None
    title: str = ""

    def value(self, row: str, column: str) -> Value | None:
        return self.values.get(row, {}).get(column)


def published(experiment: str) -> Published:
    """What the paper says about an experiment."""
    return _all()[experiment]


def published_order(experiment: str) -> int:
    """The place of an experiment among the paper's, for sorting; others go last."""
    names = list(_all())
    return names.index(experiment) if experiment in names else len(names)


@functools.cache
def _all() -> dict[str, Published]:
    text = resources.files("sampa.lab.results").joinpath("paper.toml").read_text(encoding="utf-8")
    found: dict[str, Published] = {}
    for name, table in tomllib.loads(text, parse_float=Decimal).items():
        values = {
            row: {column: _value(*value) for column, value in columns.items()}
            for row, columns in table.get("values", {}).items()
        }
        found[name] = replace(Published(**table), values=values)
    return found


def _value(mean: Decimal | int, std: Decimal | None = None) -> Value:
    """A number of the file, whose last zeros count."""
    _, _, exponent = Decimal(mean).as_tuple()
    assert isinstance(exponent, int)  # neither NaN nor infinite
    return Value(float(mean), None if std is None else float(std), -exponent)
