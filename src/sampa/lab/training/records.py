"""A grid of results as files to keep: every number with the conditions that it came from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sampa.lab.training.folder import RunFolder
from sampa.lab.training.run import Run
from sampa.lab.training.tables import Grid, Spread, headline, paired_difference, shown, spread


def write_record(folder: Path, run: Run, out: Path, grid: Grid, command: Sequence[str]) -> None:
    """Write results.json and README.md for the finished runs of a grid."""
    runs = [
        _run_record(out / method / f"seed-{seed}", method, seed)
        for method, by_seed in grid.items()
        for seed in by_seed
    ]
    summary = {method: _summary(grid, method) for method in grid}
    record = {"recipe": run.name, "about": run.about, "summary": summary, "runs": runs}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(record, indent=1) + "\n")
    (folder / "README.md").write_text(_page(run, grid, runs, command))


def _run_record(path: Path, method: str, seed: int) -> dict[str, Any]:
    folder = RunFolder(path)
    saved, result = folder.read("run.json") or {}, folder.read("result.json") or {}
    return {"method": method, "seed": seed, **result, **saved}


def _summary(grid: Grid, method: str) -> dict[str, Any]:
    metric, baseline = headline(grid), next(iter(grid))
    scores = spread([row[metric] for row in grid[method].values()])
    difference = paired_difference(grid, method, baseline, metric)
    return {
        "metric": metric,
        **numbers(scores),
        "difference": None if difference is None else {"to": baseline, **numbers(difference)},
    }


def numbers(s: Spread) -> dict[str, Any]:
    """A spread as JSON holds it: what one number does not have is None."""
    error = s.standard_error if s.n > 1 else None
    return {
        "n": s.n,
        "mean": s.mean,
        "std": s.std if s.n > 1 else None,
        "standard_error": error,
    }


def _page(run: Run, grid: Grid, runs: list[dict[str, Any]], command: Sequence[str]) -> str:
    metric, baseline = headline(grid), next(iter(grid))
    rows = [
        f"| {method} | {len(by_seed)} | {spread([row[metric] for row in by_seed.values()])} | "
        f"{shown(paired_difference(grid, method, baseline, metric))} |"
        for method, by_seed in grid.items()
    ]
    return "\n".join(
        [
            f"# {run.name}",
            "",
            f"{run.about[0].upper()}{run.about[1:]}.",
            "",
            f"| method | n | test {metric} | against {baseline}, paired by seed (± s.e.) |",
            "|---|--:|--:|--:|",
            *rows,
            "",
            "Mean ± standard deviation over seeds, of the model that was best on the validation "
            "images. Written by",
            "",
            f"    {' '.join(command)}",
            "",
            *_conditions(runs),
            "",
        ]
    )


def _conditions(runs: list[dict[str, Any]]) -> list[str]:
    """Under what the runs were made, one line for each thing that they have in common or not."""
    found = [run["conditions"] for run in runs]
    versions = ("versions", ("python", "torch", "numpy", "sampa"))
    machine = ("machine", ("processor", "cores", "device"))
    lines = [f"- commit: {_values(found, 'commit')}"]
    for group, names in (versions, machine):
        texts = [f"{name} {_values([c[group] for c in found], name)}" for name in names]
        lines.append(f"- {group}: {', '.join(texts)}")
    lines.append(
        f"- threads: {_values(found, 'threads')}, processes: {_values(found, 'processes')}"
    )
    lines.append(f"- seeds: {', '.join(sorted({str(run['seed']) for run in runs}))}")
    return lines


def _values(conditions: list[dict[str, Any]], name: str) -> str:
    return " and ".join(sorted({str(c[name]) for c in conditions}))
