"""The table of a grid of methods and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sampa.lab.results.outcome import RunResult
from sampa.lab.results.outcome_tables import method_table
from sampa.lab.results.table import Table
from sampa.lab.training.folder import RunFolder

Results = dict[str, list[RunResult]]
"""The finished runs of each method."""


def read_results(out: Path, methods: Sequence[str], seeds: Sequence[int]) -> Results:
    """What is finished below a folder, as `sampa compare` lays it out."""
    results: Results = {}
    for method in methods:
        for seed in seeds:
            result = RunFolder(out / method / f"seed-{seed}").read("result.json")
            if result is not None:
                results.setdefault(method, []).append(RunResult.from_json(seed, result))
    return results


def headline(results: Results) -> str:
    """The metric that comes first in the results."""
    return next((metric for runs in results.values() for metric in runs[0].test), "accuracy")


def comparison(name: str, results: Results, about: str = "") -> Table:
    """Each method, and its difference to the first."""
    table = method_table(name, results, headline(results), next(iter(results)))
    return replace(table, notes=(about,))
