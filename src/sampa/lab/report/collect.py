"""Collect: from folders to finished runs and outcomes, with a reason for everything left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sampa.lab.files import read_text
from sampa.lab.flatness.saved import read_found
from sampa.lab.flatness.settings import FLATNESS_FILE
from sampa.lab.report.flatness import Measured
from sampa.lab.report.records import (
    FinishedRun,
    LeftOut,
    Paper,
    read_kept_runs,
    read_paper,
    read_record,
)
from sampa.lab.results.outcome import NOTES, RESULTS, Outcome, read_outcome
from sampa.lab.results.paper import published_order
from sampa.messages import WrongUsage, require

RUNS_FILE = "runs.jsonl"
MARKS = ("run.json", "metrics.jsonl", "result.json")  # any of them makes a folder a run's


@dataclass
class Collection:
    """All that was found below some folders."""

    runs: list[FinishedRun] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    flatness: list[Measured] = field(default_factory=list)


def collect(folders: Sequence[Path]) -> Collection:
    """Read every run and outcome below the folders, in the order of their paths.

    Raises:
        ValueError: If a folder does not exist.
        WrongUsage: If there is no run at all.
    """
    for folder in folders:
        require("folder", str(folder), folder.is_dir(), "an existing folder")
    found = Collection()
    _collect_outcomes(folders, found)
    _collect_flatness(folders, found)
    runs = {run.resolve(): (run, root) for root in folders for run in find_runs(root)}
    if not runs and not found.outcomes and not found.flatness:
        names = ", ".join(map(str, folders))
        raise WrongUsage(f"no run found below {names}; `sampa train` and `sampa compare` make them")
    for run, root in runs.values():
        paper, place = _nearest_paper(run, root, found.left_out), place_of(run, root)
        try:
            if run.name == RUNS_FILE:
                found.runs += read_kept_runs(run, str(Path(place).parent), paper)
            else:
                found.runs.append(read_record(run, place, paper))
        except (ValueError, OSError) as error:
            found.left_out.append(LeftOut(place, _reason(error)))
    return found


def _collect_outcomes(folders: Sequence[Path], found: Collection) -> None:
    """Each experiment's outcome at a scale once, in the paper's order."""
    kept: dict[tuple[str, str], Outcome] = {}
    for root in folders:
        for file in sorted(root.rglob(RESULTS)):
            try:
                outcome = read_outcome(file)
                if outcome is not None:
                    kept.setdefault((outcome.id, outcome.scale), outcome)
            except (ValueError, OSError) as error:
                found.left_out.append(LeftOut(place_of(file, root), _reason(error)))
    found.outcomes = sorted(kept.values(), key=lambda outcome: published_order(outcome.id))


def _collect_flatness(folders: Sequence[Path], found: Collection) -> None:
    """What `sampa flatness` left behind, each once."""
    files = [(root, file) for root in folders for file in sorted(root.rglob(FLATNESS_FILE))]
    for root, file in files:
        notes = file.with_name(NOTES)
        try:
            measured = Measured(read_found(file), read_text(notes) if notes.exists() else "")
        except (ValueError, OSError) as error:
            found.left_out.append(LeftOut(place_of(file, root), _reason(error)))
            continue
        if measured.found not in [other.found for other in found.flatness]:
            found.flatness.append(measured)


def find_runs(root: Path) -> list[Path]:
    """The folders below one (itself included) that hold a run, and the files that hold several."""
    places = {file.parent for mark in MARKS for file in root.rglob(mark)}
    return sorted(places | set(root.rglob(RUNS_FILE)))


def place_of(path: Path, root: Path) -> str:
    """A path as the report names it: from the folder that was asked for, not from the root."""
    return str(Path(root.resolve().name) / path.relative_to(root))


def _nearest_paper(run: Path, root: Path, left_out: list[LeftOut]) -> Paper | None:
    """The paper.json of a run's folder or of the nearest one above it, up to the root."""
    between = [run, *run.parents][: len(run.relative_to(root).parts) + 1]
    file = next((f for folder in between if (f := folder / "paper.json").exists()), None)
    if file is None:
        return None
    try:
        return read_paper(file)
    except (ValueError, OSError) as error:
        reason = LeftOut(place_of(file, root), _reason(error))
        if reason not in left_out:
            left_out.append(reason)
        return None


def _reason(error: ValueError | OSError) -> str:
    """What is wrong, without the path on this machine."""
    if isinstance(error, OSError) and error.strerror:
        return f"a file is not readable: {error.strerror}"
    return str(error)
