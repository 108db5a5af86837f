"""Records: finished runs, read from their folders and checked."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sampa.lab.conditions import flat
from sampa.lab.files import read_json_lines
from sampa.lab.results.outcome import RunResult
from sampa.lab.results.paper import Value
from sampa.lab.training.folder import DIVERGED, RunFolder
from sampa.lab.training.run import Run

T = TypeVar("T")
Curve = dict[int, float]
"""A value by epoch, counted from 1; NaN where it was not finite."""


@dataclass(frozen=True)
class Paper:
    """Published values to stand beside ours, from an optional paper.json.

    Attributes:
        metric: The test metric they are of.
        values: By method.
        source: Where they are printed.
    """

    metric: str
    values: dict[str, Value]
    source: str = ""


@dataclass(frozen=True)
class FinishedRun:
    """One finished run.

    Attributes:
        place: The folder, beginning with the name of the one that was asked for.
        conditions: Commit, versions, machine and the like, by dotted name, as text.
        curves: What was written each epoch, by name.
    """

    place: str
    run: Run
    conditions: dict[str, str]
    curves: dict[str, Curve]
    result: RunResult
    paper: Paper | None = None


@dataclass(frozen=True)
class LeftOut:
    """Something that is not in the report, and why."""

    place: str
    reason: str


def read_record(folder: Path, place: str, paper: Paper | None) -> FinishedRun:
    """The run in a folder.

    Raises:
        ValueError: With the reason, if it is unfinished or not as `sampa train` writes it.
        OSError: If a file cannot be read.
    """
    saved = _read(folder, "run.json")
    Run.from_json(part(saved, "run", dict, "run.json"))  # its faults are reported first
    lines = _lines(folder)
    if not os.path.lexists(folder / "result.json"):
        why = "diverged" if os.path.lexists(folder / DIVERGED) else "unfinished"
        raise ValueError(f"{why}: {len(lines)} epochs and no result.json")
    return _record(saved, lines, _read(folder, "result.json"), place, paper)


def read_kept_runs(file: Path, place: str, paper: Paper | None) -> list[FinishedRun]:
    """The runs that `sampa reproduce --record` put into one file, a line each.

    Raises:
        ValueError: With the reason, if it is not as that command writes it.
        OSError: If it cannot be read.
    """
    try:
        found = read_json_lines(file)
    except ValueError as error:
        raise ValueError(f"{file.name} is not readable: {error.__cause__ or error}") from error
    records: list[FinishedRun] = []
    for number, line in enumerate(found, start=1):
        try:
            lines = part(line, "metrics", list, file.name)
            result = part(line, "result", dict, file.name)
            where = f"{place}/{part(line, 'place', str, file.name)}"
            records.append(_record(line, lines, result, where, paper))
        except ValueError as error:
            raise ValueError(f"line {number} of {file.name} is not a run: {error}") from error
    return records


def _record(
    saved: dict[str, Any],
    lines: list[dict[str, Any]],
    result: dict[str, Any],
    place: str,
    paper: Paper | None,
) -> FinishedRun:
    run = Run.from_json(part(saved, "run", dict, "run.json"))
    test = _numbers(part(result, "test", dict, "result.json"))
    if not test or not math.isfinite(next(iter(test.values()))):
        raise ValueError(f"result.json must have a finite test metric, got {test}")
    best_epoch = part(result, "best_epoch", int, "result.json")
    seconds = _float(part(result, "seconds", (int, float), "result.json"))
    return FinishedRun(
        place=place,
        run=run,
        conditions=flat(part(saved, "conditions", dict, "run.json")),
        curves=_curves(lines),
        result=RunResult(test=test, best_epoch=best_epoch, seconds=seconds),
        paper=paper,
    )


def read_paper(file: Path) -> Paper:
    """The published values in a file.

    Raises:
        ValueError: With the reason, if it is not {"metric": ..., "values": {method: [mean, std]}}.
        OSError: If it cannot be read.
    """
    saved = _read(file.parent, file.name)
    values = part(saved, "values", dict, file.name)
    return Paper(
        metric=part(saved, "metric", str, file.name),
        values={method: _published(value) for method, value in values.items()},
        source=str(saved.get("source", "")),
    )


def part(values: object, name: str, kind: type[T] | tuple[type[T], ...], file: str) -> T:
    """An entry of a JSON object, checked."""
    found = values.get(name) if isinstance(values, Mapping) else None
    if not isinstance(found, kind):
        raise ValueError(f"{file} must have {name!r} as sampa train writes it, got {found!r}")
    return found


def _read(folder: Path, name: str) -> dict[str, Any]:
    try:
        found = RunFolder(folder).read(name)
    except ValueError as error:
        # The cause alone: the whole message names the path on the machine that makes the report.
        raise ValueError(f"{name} is not readable: {error.__cause__ or error}") from error
    if found is None:
        raise ValueError(f"{name} is missing")
    return found


def _lines(folder: Path) -> list[dict[str, Any]]:
    try:
        lines = RunFolder(folder).metrics()
    except ValueError as error:
        raise ValueError(f"metrics.jsonl is not readable: {error.__cause__ or error}") from error
    if not all(isinstance(line, dict) and isinstance(line.get("epoch"), int) for line in lines):
        raise ValueError("metrics.jsonl must have an object with 'epoch' on each line")
    return lines


def _curves(lines: Sequence[dict[str, Any]]) -> dict[str, Curve]:
    curves: dict[str, Curve] = {}
    for line in lines:
        for name, value in _numbers(line).items():
            if name != "epoch":
                curves.setdefault(name, {})[line["epoch"] + 1] = value
    return curves


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The entries that are numbers; those that are not finite as NaN."""
    numbers = {k: v for k, v in values.items() if isinstance(v, int | float) and v is not True}
    return {k: _float(v) for k, v in numbers.items()}


def _float(value: float) -> float:
    try:
        return float(value) if math.isfinite(value) else math.nan
    except OverflowError:  # a whole number with hundreds of digits
        return math.nan


def _published(value: object) -> Value:
    pair = value if isinstance(value, list) else [value]
    if not 1 <= len(pair) <= 2 or not isinstance(pair[0], int | float):
        raise ValueError(f"paper.json must give a number or [mean, std] a method, got {value!r}")
    std = pair[1] if len(pair) == 2 else None
    return Value(float(pair[0]), float(std) if isinstance(std, int | float) else None, 2)
