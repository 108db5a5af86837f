"""Collect: from folders to records, and a reason for everything that is left out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sampa.lab.report.records import Paper, Record, read_paper, read_record, read_records
from sampa.lab.reproduce.outcome import Outcome, Recorded
from sampa.lab.reproduce.paper import published_order
from sampa.lab.reproduce.writing import NOTES
from sampa.messages import require

MANY = "runs.jsonl"
MARKS = ("run.json", "metrics.jsonl", "result.json")  # any of them makes a folder a run's


@dataclass(frozen=True)
class Problem:
    """Something that is not in the report, and why."""

    place: str
    reason: str


@dataclass(frozen=True)
class Collection:
    """All that was found below some folders."""

    records: tuple[Record, ...]
    problems: tuple[Problem, ...]
    outcomes: tuple[Recorded, ...] = ()


def collect(folders: Sequence[Path]) -> Collection:
    """Read every run below the folders, in the order of their paths.

    Raises:
        ValueError: If a folder does not exist, or there is no run at all.
    """
    for folder in folders:
        require("folder", str(folder), folder.is_dir(), "an existing folder")
    found = {run.resolve(): (run, root) for root in folders for run in find_runs(root)}
    outcomes = collect_outcomes(folders)
    if not found and not outcomes.found:
        names = ", ".join(map(str, folders))
        raise ValueError(f"no run found below {names}; `sampa train` and `sampa compare` make them")
    records: list[Record] = []
    problems = list(outcomes.problems)
    for run, root in found.values():
        paper = _nearest_paper(run, root, problems)
        try:
            records += _read(run, shown(run, root), paper)
        except (ValueError, OSError) as error:
            problems.append(Problem(shown(run, root), _reason(error)))
    return Collection(tuple(records), tuple(problems), tuple(outcomes.found))


def _read(run: Path, place: str, paper: Paper | None) -> list[Record]:
    """The run in a folder, or those in a file."""
    if run.is_file():
        return read_records(run, str(Path(place).parent), paper)
    return [read_record(run, place, paper)]


@dataclass
class Outcomes:
    """Tables and figures that `sampa reproduce` left, and what could not be read."""

    found: list[Recorded] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def collect_outcomes(folders: Sequence[Path]) -> Outcomes:
    """Each experiment's outcome at a scale once, in the paper's order."""
    kept: dict[tuple[str, str], Recorded] = {}
    outcomes = Outcomes()
    for root in folders:
        for file in sorted(root.rglob("results.json")):
            try:
                saved = json.loads(file.read_text(encoding="utf-8"))
                if isinstance(saved, dict) and "entries" in saved:  # `sampa compare` has others
                    outcome = Outcome.from_json(saved)
                    recorded = Recorded(outcome, _notes(file.parent))
                    kept.setdefault((outcome.id, outcome.scale), recorded)
            except (ValueError, OSError) as error:
                outcomes.problems.append(Problem(shown(file, root), _reason(error)))
    outcomes.found = sorted(kept.values(), key=lambda found: published_order(found.outcome.id))
    return outcomes


def _notes(folder: Path) -> str:
    notes = folder / NOTES
    return notes.read_text(encoding="utf-8") if notes.exists() else ""


def find_runs(root: Path) -> list[Path]:
    """The folders below one (itself included) that hold a run, and the files that hold several."""
    places = {file.parent for mark in MARKS for file in root.rglob(mark)}
    return sorted(places | set(root.rglob(MANY)))


def shown(path: Path, root: Path) -> str:
    """A path as the report names it: from the folder that was asked for, not from the root."""
    return str(Path(root.resolve().name) / path.relative_to(root))


def _nearest_paper(run: Path, root: Path, problems: list[Problem]) -> Paper | None:
    """The paper.json of a run's folder or of the nearest one above it, up to the root."""
    between = [run, *run.parents][: len(run.relative_to(root).parts) + 1]
    file = next(
        (place / "paper.json" for place in between if (place / "paper.json").exists()), None
    )
    if file is None:
        return None
    try:
        return read_paper(file)
    except (ValueError, OSError) as error:
        problem = Problem(shown(file, root), _reason(error))
        if problem not in problems:
            problems.append(problem)
        return None


def _reason(error: ValueError | OSError) -> str:
    """What is wrong, without the path on this machine."""
    if isinstance(error, OSError) and error.strerror:
        return f"a file is not readable: {error.strerror}"
    return str(error)
