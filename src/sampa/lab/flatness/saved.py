"""The file that a sweep leaves behind, which `sampa report` finds: flatness.json.

`sampa flatness` writes it to its --out and to a record. It is read as a file of unknown origin.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from sampa.lab.files import read_json, replace_file
from sampa.lab.flatness.kinds import MEASURES
from sampa.lab.flatness.outcome import Found
from sampa.lab.flatness.settings import FLATNESS_FILE
from sampa.lab.training.fields import read_fields


def write_found(found: Found, file: Path) -> None:
    """All numbers, with settings and conditions."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found.as_json(), indent=1, ensure_ascii=False)
    replace_file(file, f"{text}\n".encode())


def read_found(file: Path) -> Found:
    """What a sweep found.

    Raises:
        ValueError: If the file is not as `sampa flatness` writes it, saying what is wrong.
        OSError: If it cannot be read.
    """
    try:
        saved = read_json(file)
    except ValueError as error:
        raise ValueError(f"{file.name} is not readable: {error.__cause__ or error}") from error
    found = read_fields(Found, saved, file.name)
    for measure, by_name in found.values.items():
        _require(measure in MEASURES, f"values.{measure}", "of a measure that this version has")
        fits = _is_picture if MEASURES[measure].is_picture else _is_numbers
        for name, value in by_name.items():
            rule = "lists of finite numbers as sampa flatness writes them"
            _require(fits(value), f"values.{measure}[{name!r}]", rule)
    known = {*found.values} <= {*found.gradients}
    _require(known, "gradients", "the cost of each measure")
    return found


def _require(holds: bool, name: str, rule: str) -> None:
    if not holds:
        raise ValueError(f"{FLATNESS_FILE} must have {name} as {rule}")


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_number, value))


def _is_number(value: Any) -> bool:
    """A number, which may be infinite or NaN where training went wrong."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return isinstance(value, float) or abs(value) <= 1e300


def _is_picture(value: Any) -> bool:
    """A line, a plane, or a density: lists as long as each other."""
    if not isinstance(value, dict):
        return False
    if "nodes" in value:
        nodes, weights = value["nodes"], value.get("weights", [])
        both = _is_grid(nodes) and _is_grid(weights)
        return both and [len(r) for r in nodes] == [len(r) for r in weights]
    marks, dimensions = value.get("marks", {}), 2 if "y" in value else 1
    loss, x, y = (value.get(name, []) for name in ("loss", "x", "y"))
    marked = isinstance(marks, dict) and all(
        _is_axis(mark) and len(mark) == dimensions for mark in marks.values()
    )
    if not marked or not _is_axis(x) or not _is_number(value.get("barrier", 0.0)):
        return False
    if dimensions == 1:
        return _is_numbers(loss) and len(loss) == len(x)
    return _is_axis(y) and _is_grid(loss) and [len(line) for line in loss] == [len(y)] * len(x)


def _is_axis(value: Any) -> bool:
    return _is_numbers(value) and all(map(math.isfinite, value))


def _is_grid(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_numbers, value))
