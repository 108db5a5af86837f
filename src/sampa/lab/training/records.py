"""The results of a grid of methods and seeds: their table, and files to keep with the conditions.

`python -m sampa.lab.training.records results/train` writes the pages of all records below a folder
again, from the numbers that are stored there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sampa.lab.conditions import Conditions
from sampa.lab.files import read_json, replace_file
from sampa.lab.results.outcome import RunResult, compared, entry_of
from sampa.lab.results.outcome_tables import method_table
from sampa.lab.results.table import Table, as_markdown
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.run import Run

Results = dict[str, dict[int, RunResult]]
"""The finished runs of each method, by seed."""


def read_results(out: Path, methods: Sequence[str], seeds: Sequence[int]) -> Results:
    """What is finished below a folder, as `sampa compare` lays it out."""
    results: Results = {}
    for method in methods:
        for seed in seeds:
            result = RunFolder(out / method / f"seed-{seed}").read("result.json")
            if result is not None:
                results.setdefault(method, {})[seed] = RunResult.from_json(result)
    return results


def first_metric(results: Results) -> str:
    """The metric that comes first in the results."""
    return next(m for runs in results.values() for run in runs.values() for m in run.test)


def comparison(name: str, results: Results, about: str = "") -> Table:
    """Each method, and its difference to the first."""
    table = method_table(name, results, first_metric(results), next(iter(results)))
    return replace(table, notes=(about,))


def conditions_of_grid(out: Path, results: Results) -> Conditions:
    """Under what the runs of a grid were made."""
    folders = [out / method / f"seed-{seed}" for method, found in results.items() for seed in found]
    return Conditions.merged(RunFolder(folder).conditions() for folder in folders)


def write_record(
    folder: Path, run: Run, out: Path, results: Results, command: Sequence[str]
) -> None:
    """Write results.json and README.md for the finished runs of a grid."""
    runs: list[dict[str, Any]] = []
    for method, seed in [(method, seed) for method, found in results.items() for seed in found]:
        own = RunFolder(out / method / f"seed-{seed}")
        saved, result = own.read("run.json") or {}, own.read("result.json") or {}
        runs.append({"method": method, "seed": seed, **result, **saved})
    folder.mkdir(parents=True, exist_ok=True)
    about = {"recipe": run.name, "about": run.about, "command": " ".join(command)}
    _write(folder, {**about, "runs": runs})


def _write(folder: Path, record: dict[str, Any]) -> None:
    results: Results = {}
    for run in record["runs"]:
        results.setdefault(run["method"], {})[run["seed"]] = RunResult.from_json(run)
    record["summary"] = {method: _summary(results, method) for method in results}
    replace_file(folder / "results.json", (json.dumps(record, indent=1) + "\n").encode())
    replace_file(folder / "README.md", _page(record, results).encode())


def _summary(results: Results, method: str) -> dict[str, Any]:
    metric, baseline = first_metric(results), next(iter(results))
    entry = entry_of(metric, method, results[method])
    difference = compared(entry, entry_of(metric, baseline, results[baseline]))
    return {
        "metric": metric,
        **entry.ours.as_json(),
        "difference": difference and {"to": baseline, **difference.ours.as_json()},
    }


def _page(record: dict[str, Any], results: Results) -> str:
    about = record["about"]
    seeds = sorted({str(run["seed"]) for run in record["runs"]})
    parts = [
        f"# {record['recipe']}",
        f"{about[0].upper()}{about[1:]}.",
        "\n".join(as_markdown(comparison(record["recipe"], results))),
        "Mean ± standard deviation over seeds, of the model that was best on the validation "
        "images; differences are paired by seed, with their 95 % interval (Student's t). "
        "Written by",
        f"    {record['command']}",
        Conditions.merged(Conditions.from_json(run["conditions"]) for run in record["runs"])
        .changed({"seeds": ", ".join(seeds)})
        .as_markdown(),
    ]
    return "\n\n".join(parts) + "\n"


def main(root: Path) -> int:
    for file in sorted(root.rglob("results.json")):
        _write(file.parent, read_json(file))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
