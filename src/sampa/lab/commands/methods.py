"""`sampa methods`: what there is, and what it costs."""

from __future__ import annotations

import dataclasses
import json

from rich import box
from rich.console import Console
from rich.table import Table

from sampa.cost import Cost, survey
from sampa.lab.commands.arguments import MethodsArguments


def main(arguments: MethodsArguments) -> int:
    costs = survey()
    if arguments.json is not None:
        keys = ("name", "probes", "rounds", "hyperparameters", "memory", "summary", "source")
        rows = [{key: dataclasses.asdict(cost)[key] for key in keys} for cost in costs]
        arguments.json.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
    console = Console()
    console.print(table(costs, narrow=console.width < NARROW_TABLE))
    if console.width < NARROW_TABLE:
        console.print("A wider terminal (or --json) also shows the defaults and their source.")
    return 0


NARROW_TABLE = 120  # columns of a terminal that cannot show everything side by side


def table(costs: list[Cost], *, narrow: bool) -> Table:
    """The methods as a table for the terminal; a narrow one leaves out the defaults."""
    view = Table(box=box.SIMPLE_HEAD, title="Methods, counted per update on a two-weight problem")
    view.add_column("name", style="bold", no_wrap=True)
    for column in ("probes", "rounds", "memory"):
        view.add_column(column, justify="right")
    for column in ("what it does",) if narrow else ("what it does", "defaults", "their source"):
        view.add_column(column)
    for cost in costs:
        counts = [f"{cost.probes:g}", f"{cost.rounds:g}", f"{cost.memory:g}P"]
        values = cost.hyperparameters.items()
        defaults = ", ".join(f"{name}={value}" for name, value in values if _is_plain(value))
        texts = [cost.summary] if narrow else [cost.summary, defaults, cost.source]
        view.add_row(cost.name, *counts, *texts)
    return view


def _is_plain(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
