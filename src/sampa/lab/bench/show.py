"""The results of a benchmark as tables, for the terminal and for a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.table import Table

from sampa.lab.bench.contenders import contenders
from sampa.lab.bench.own_cost import LEAST_BYTES
from sampa.lab.bench.results import Ratio


@dataclass(frozen=True)
class Sheet:
    """A table without a look: the first column is left-aligned, the others right."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    caption: str = ""

    def for_terminal(self) -> Table:
        table = Table(title=self.title, title_justify="left", box=None, pad_edge=False)
        table.caption = self.caption or None
        for i, column in enumerate(self.columns):
            table.add_column(column, justify="right" if i else "left")
        for row in self.rows:
            table.add_row(*row)
        return table


def sheets(result: dict[str, Any]) -> list[Sheet]:
    """Everything that was measured."""
    made = [ratio_sheet(result), time_sheet(result), count_sheet(result)]
    return [*made, own_cost_sheet(result)] if result.get("own_cost") else made


def ratio_sheet(result: dict[str, Any]) -> Sheet:
    """Ratios of step times, with quartiles."""
    rows = []
    for name, values in result["ratios"].items():
        r = Ratio(**values)
        rows.append((name.replace("/", " / "), f"{r.median:.3f}", f"{r.low:.3f} to {r.high:.3f}"))
    title = f"Ratios of step times, paired within {result['rounds']} rounds"
    return Sheet(title, ("ratio", "median", "quartiles"), rows)


def time_sheet(result: dict[str, Any]) -> Sheet:
    """Medians, lower quartiles and peak memory of each contender."""
    places = {c.name: c.place.value for c in contenders()}
    fast, memory = result["fast_milliseconds"], result["peak_memory"]
    rows = [
        (name, places[name], f"{ms:.2f}", f"{fast[name]:.2f}", _megabytes(memory.get(name)))
        for name, ms in result["milliseconds"].items()
    ]
    exposed, limit = result["exposed_milliseconds"], result["milliseconds"]["limit"]
    share = 100 * exposed / limit
    caption = f"SAMPa beyond the limit: {exposed:.2f} ms, {share:.1f} % of it"
    columns = ("method", "where", "median ms", "lower quartile", "peak MB")
    return Sheet("Times and memory", columns, rows, caption)


def count_sheet(result: dict[str, Any]) -> Sheet:
    """Rounds, gradients and bytes of a step."""
    rows = [
        (name, str(c["rounds"]), str(c["probes"]), f"{c['gradient_bytes'] + c['header_bytes']:,}")
        for name, c in result["counts"].items()
    ]
    columns = ("method", "rounds", "gradients", "bytes sent per rank")
    return Sheet("What a step does, exactly", columns, rows)


def own_cost_sheet(result: dict[str, Any]) -> Sheet:
    """Steps beyond their gradients."""
    rows = [
        (
            cost["method"],
            f"{cost['parameters']:,}",
            str(cost["kernels"]),
            _bytes(cost["bytes_per_parameter"]),
            _bytes(LEAST_BYTES.get(cost["method"])),
            f"{cost['milliseconds']:.2f}",
        )
        for cost in result["own_cost"]
    ]
    columns = ("method", "parameters", "kernels", "bytes per parameter", "least", "ms")
    title = "A step beyond its gradients, in one process with fused SGD and momentum"
    return Sheet(title, columns, rows, "least: if nothing is copied to be safe")


def described(conditions: dict[str, Any]) -> str:
    """Under what it was measured, in a line or two."""
    problem, machine = conditions["problem"], conditions["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in conditions["versions"].items())
    return (
        f"{problem['model']}, batch {problem['batch_size']}, {problem['base']}; "
        f"{machine['processor']}, {machine['cores']} cores, {machine['device']}, one thread per "
        f"process; {versions}; commit {conditions['commit']}"
    )


def _megabytes(count: int | None) -> str:
    return "" if count is None else f"{count / 1e6:.0f}"


def _bytes(count: float | None) -> str:
    return "" if count is None else f"{count:.0f}"
