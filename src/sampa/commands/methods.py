"""`sampa methods`: what there is, and what it costs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

from rich import box
from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from sampa.survey import Cost, survey


def methods(json_file: Annotated[Path | None, arg(name="json")] = None) -> None:
    """List all methods with their cost and defaults.

    The counts come from running each method on a problem with two weights: gradients (probes) and
    sequential gradients (rounds) per update, and weight-sized copies kept through a step.

    Examples:
        sampa methods
        sampa methods --json methods.json

    Args:
        json_file: Also write the table as JSON to this file.
    """
    costs = survey()
    if json_file is not None:
        keys = ("name", "probes", "rounds", "hyperparameters", "memory", "summary", "source")
        rows = [{key: dataclasses.asdict(cost)[key] for key in keys} for cost in costs]
        json_file.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
    Console().print(table(costs))


def table(costs: list[Cost]) -> Table:
    """The methods as a table for the terminal."""
    view = Table(box=box.SIMPLE_HEAD, title="Methods, counted per update on a two-weight problem")
    view.add_column("name", style="bold", no_wrap=True)
    for column in ("probes", "rounds", "memory"):
        view.add_column(column, justify="right")
    for column in ("what it does", "defaults", "their source"):
        view.add_column(column)
    for cost in costs:
        defaults = ", ".join(f"{k}={v}" for k, v in cost.hyperparameters.items() if _is_plain(v))
        memory = f"{cost.memory:g}P"
        view.add_row(
            cost.name,
            f"{cost.probes:g}",
            f"{cost.rounds:g}",
            memory,
            cost.summary,
            defaults,
            cost.source,
        )
    return view


def _is_plain(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
