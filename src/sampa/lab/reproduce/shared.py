"""Runs that several experiments have in common are made once.

SGD, SAM and SAMPa under 40 % label noise, say, stand in four tables. Runs are the same if all that
decides their numbers is: names are not, nor the radii of methods that a run does not use.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sampa.lab.files import read_json_lines
from sampa.lab.reproduce.finished import (
    line_of,
    settings_in,
    settings_of,
    why_not,
    write_finished,
)
from sampa.lab.reproduce.request import Request
from sampa.lab.terminal import say
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.run import Run


def first_of_equals(runs: Mapping[Path, Run]) -> dict[Path, Run]:
    """Of runs with the same settings the first."""
    found: dict[str, tuple[Path, Run]] = {}
    for folder, run in runs.items():
        found.setdefault(settings_of(run), (folder, run))
    return dict(found.values())


def borrow(runs: Mapping[Path, Run], request: Request) -> None:
    """Take over finished runs with the same settings, where a run is not finished.

    They come from all experiments of the request's folder, and from the records beside its own.
    """
    wanted: dict[str, list[Path]] = {}
    for folder, run in runs.items():
        if _may_be_taken_over(folder, run):
            wanted.setdefault(settings_of(run), []).append(folder)
    for line in _finished(request) if wanted else ():
        for folder in wanted.pop(settings_in(line), ()):
            _take_over(line, folder, runs[folder])


def hand_on(runs: Mapping[Path, Run]) -> None:
    """Give what came out of the first of equal runs to the others."""
    made = {settings_of(run): folder for folder, run in first_of_equals(runs).items()}
    for folder, run in runs.items():
        if _may_be_taken_over(folder, run):
            _take_over(line_of(made[settings_of(run)]), folder, run)


def _may_be_taken_over(folder: Path, run: Run) -> bool:
    """Whether it has no result, and no work of another run would be lost."""
    if (folder / "result.json").exists():
        return False
    if not (folder / "run.json").exists():
        return True
    with suppress(ValueError):  # damaged: who opens it will say so
        return settings_of(RunFolder(folder).run()) == settings_of(run)
    return False


def _take_over(line: dict[str, Any], folder: Path, run: Run) -> None:
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # they have another run's id
    # `made_as` tells whose it is, so that its time is not counted twice.
    write_finished({"made_as": line["run"]["name"], **line, "run": run.as_json()}, folder)


def _finished(request: Request) -> Iterator[dict[str, Any]]:
    """All finished runs at the request's scale that it may take over."""
    return (line for line in _all_finished(request) if _is_of_use(line, request))


def _is_of_use(line: Any, request: Request) -> bool:
    dirty = request.takes_dirty
    return isinstance(line, dict) and not why_not(line, request.processes, allow_dirty=dirty)


def _all_finished(request: Request) -> Iterator[Any]:
    for file in sorted(request.out.glob(f"*-{request.scale}/**/result.json")):
        with suppress(ValueError):  # damaged: its own experiment will say so
            yield line_of(file.parent)
    if request.record is not None:
        for file in sorted(request.record.parent.glob("*/runs.jsonl")):
            try:
                yield from read_json_lines(file)
            except (ValueError, OSError) as error:
                say(f"runs of another table are not taken over: {error}")
