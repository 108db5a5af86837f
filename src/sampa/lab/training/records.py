"""A grid of results as files to keep: every number with the conditions that it came from.

`python -m sampa.lab.training.records results/train` writes the pages of all records below a folder
again, from the numbers that are stored there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sampa.lab.results.outcome import RunResult, compared, entry_of
from sampa.lab.results.table import as_markdown
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.run import Run
from sampa.lab.training.tables import Results, comparison, headline


def write_record(
    folder: Path, run: Run, out: Path, results: Results, command: Sequence[str]
) -> None:
    """Write results.json and README.md for the finished runs of a grid."""
    runs = [
        _run_record(out / method / f"seed-{result.seed}", method, result.seed)
        for method, found in results.items()
        for result in found
    ]
    folder.mkdir(parents=True, exist_ok=True)
    about = {"recipe": run.name, "about": run.about, "command": " ".join(command)}
    _write(folder, {**about, "runs": runs})


def _run_record(path: Path, method: str, seed: int) -> dict[str, Any]:
    folder = RunFolder(path)
    saved, result = folder.read("run.json") or {}, folder.read("result.json") or {}
    return {"method": method, "seed": seed, **result, **saved}


def _write(folder: Path, record: dict[str, Any]) -> None:
    results: Results = {}
    for run in record["runs"]:
        result = RunResult.from_json(run["seed"], run)
        results.setdefault(run["method"], []).append(result)
    record["summary"] = {method: _summary(results, method) for method in results}
    (folder / "results.json").write_text(json.dumps(record, indent=1) + "\n")
    (folder / "README.md").write_text(_page(record, results))


def _summary(results: Results, method: str) -> dict[str, Any]:
    metric, baseline = headline(results), next(iter(results))
    entry = entry_of(metric, method, results[method])
    difference = compared(entry, entry_of(metric, baseline, results[baseline]))
    return {
        "metric": metric,
        **entry.ours.as_json(),
        "difference": difference and {"to": baseline, **difference.ours.as_json()},
    }


def _page(record: dict[str, Any], results: Results) -> str:
    about = record["about"]
    return "\n".join(
        [
            f"# {record['recipe']}",
            "",
            f"{about[0].upper()}{about[1:]}.",
            "",
            *as_markdown(comparison(record["recipe"], results)),
            "",
            "Mean ± standard deviation over seeds, of the model that was best on the validation "
            "images; differences are paired by seed, with their 95 % interval (Student's t). "
            "Written by",
            "",
            f"    {record['command']}",
            "",
            *_conditions(record["runs"]),
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


def main(root: Path) -> int:
    for file in sorted(root.rglob("results.json")):
        _write(file.parent, json.loads(file.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
