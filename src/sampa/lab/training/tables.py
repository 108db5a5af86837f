"""Tables of results: mean ± std over seeds, and differences paired by seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table

from sampa.lab.training.folder import RunFolder
from sampa.lab.training.run import Run

SURE = 2.0  # standard errors from which on a difference counts


def is_beyond_chance(difference: float, margin: float) -> bool:
    """Whether a difference is as large as `SURE` standard errors; none at all says nothing."""
    return difference != 0 and abs(difference) >= margin


@dataclass(frozen=True)
class Spread:
    """Some numbers in short: n, mean, standard deviation (NaN for a single one)."""

    n: int
    mean: float
    std: float

    @property
    def standard_error(self) -> float:
        return self.std / math.sqrt(self.n)

    @property
    def is_sure(self) -> bool:
        """Whether the mean of these differences is more than chance."""
        return self.n > 1 and is_beyond_chance(self.mean, SURE * self.standard_error)

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.std:.2f}" if self.n > 1 else f"{self.mean:.2f}"


def spread(values: Sequence[float]) -> Spread:
    """Mean and sample standard deviation."""
    std = statistics.stdev(values) if len(values) > 1 else math.nan
    return Spread(len(values), statistics.fmean(values), std)


Grid = dict[str, dict[int, dict[str, float]]]
"""Method → seed → test metrics (and "seconds")."""


def read_grid(out: Path, methods: Sequence[str], seeds: Sequence[int]) -> Grid:
    """The results that are there."""
    grid: Grid = {}
    for method in methods:
        for seed in seeds:
            result = RunFolder(out / method / f"seed-{seed}").read("result.json")
            if result is not None:
                row = {**result["test"], "seconds": result["seconds"]}
                grid.setdefault(method, {})[seed] = row
    return grid


def paired_difference(grid: Grid, method: str, baseline: str, metric: str) -> Spread | None:
    """How much better a method is than another, on the seeds that both have."""
    common = sorted(set(grid.get(method, {})) & set(grid.get(baseline, {})))
    if not common or method == baseline:
        return None
    return spread([grid[method][s][metric] - grid[baseline][s][metric] for s in common])


def comparison(run: Run, grid: Grid) -> Table:
    """A grid as a table for the terminal: each method, and its difference to the first."""
    table = Table(box=box.SIMPLE_HEAD, title=run.name, caption=run.about)
    metric, baseline = headline(grid), next(iter(grid), "")
    table.add_column("method", style="bold")
    for column in ("n", f"test {metric}", f"against {baseline} (± s.e.)", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    for method, by_seed in grid.items():
        rows = list(by_seed.values())
        scores = spread([row[metric] for row in rows])
        seconds = statistics.fmean(row["seconds"] for row in rows)
        difference = paired_difference(grid, method, baseline, metric)
        table.add_row(method, str(len(rows)), str(scores), shown(difference), f"{seconds:.0f}")
    return table


def headline(grid: Grid) -> str:
    """The metric that comes first in the results."""
    rows = [row for by_seed in grid.values() for row in by_seed.values()]
    return next(iter(rows[0])) if rows else "accuracy"


def shown(difference: Spread | None) -> str:
    """A difference with its sign and standard error; nothing for the baseline itself."""
    if difference is None:
        return ""
    if difference.n == 1:
        return f"{difference.mean:+.2f}"
    return f"{difference.mean:+.2f} ± {difference.standard_error:.2f}"
