"""A finished run as one line of a file, and whether it is of use to a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sampa.lab.conditions import DIRTY, NUMERICS, Conditions
from sampa.lab.files import replace_file
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.hyperparameters import epochs_of, radius_of
from sampa.lab.training.run import Run

RUN = ("id", "run", "conditions", "made_as")  # what run.json has


def settings_of(run: Run) -> str:
    """All that decides the numbers of a run."""
    method = {"rho": radius_of(run), "rhos": {}, "epochs": epochs_of(run), "base_epochs": None}
    return json.dumps(replace(run, name="", about="", **method).as_json(), sort_keys=True)


def settings_in(line: Mapping[str, Any], seed: int | None = None) -> str:
    """Those of a finished run, or with another seed; empty if it is not whole, or of no use."""
    try:
        run = Run.from_json(line["run"])
        is_whole = not line["result"].get("limited")
        return settings_of(run if seed is None else replace(run, seed=seed)) if is_whole else ""
    except (AttributeError, KeyError, TypeError, ValueError):
        return ""


def line_of(folder: Path) -> dict[str, Any]:
    """A finished run: what run.json has, its metrics and its result."""
    run = RunFolder(folder)
    saved = run.read("run.json") or {}
    return {**saved, "metrics": run.metrics(), "result": run.read("result.json")}


def write_finished(line: dict[str, Any], folder: Path) -> None:
    """Write the files of a finished run, the result last: a folder with one is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    metrics = [{"run_id": line.get("id", "")}, *line["metrics"]]
    _write(folder / "run.json", {name: line[name] for name in RUN if name in line})
    text = "".join(f"{json.dumps(m)}\n" for m in metrics)
    replace_file(folder / "metrics.jsonl", text.encode())
    _write(folder / "result.json", line["result"])


def _write(file: Path, values: dict[str, Any]) -> None:
    replace_file(file, f"{json.dumps(values, indent=2)}\n".encode())


def conditions_in(line: Mapping[str, Any]) -> Conditions:
    """Under what a run was made, as far as its line says."""
    found = line.get("conditions")
    return Conditions(found if isinstance(found, dict) else {})


def has_these_numerics(line: Mapping[str, Any]) -> bool:
    """Whether it would give the same numbers now; the first numerics were not written down."""
    return (conditions_in(line).each("numerics") or [1]) == [NUMERICS]


def is_committed(line: Mapping[str, Any]) -> bool:
    """Whether all source that the run was made with is in a commit."""
    return not any(str(name).endswith(DIRTY) for name in conditions_in(line).each("commit"))


def why_not(line: Mapping[str, Any], processes: int, *, allow_dirty: bool) -> str:
    """Why the numbers of a finished run are not those of one made now; empty if they are.

    The number of processes decides them too: SAM on two is data parallel.
    """
    if not has_these_numerics(line):
        return "of other numerics"
    if not (allow_dirty or is_committed(line)):
        return "of source that was not committed"
    if (conditions_in(line).each("processes") or [1]) != [processes]:
        return "made by another number of processes"
    return ""


def processes_of(line: Mapping[str, Any]) -> int:
    """How many a run was made by; the most of them if it was resumed on another number."""
    return max(conditions_in(line).each("processes") or [1])


def core_hours_of(line: Mapping[str, Any]) -> float:
    """The processor time of a run's first process, times their number.

    By the clock where it is not known; runs are made beside other work, for which they wait.
    """
    result = line["result"]
    return (result.get("core_seconds") or result["seconds"]) * processes_of(line) / 3600
