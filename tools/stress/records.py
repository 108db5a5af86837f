"""Trials that can be stopped and continued, and the record of them that is kept."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sampa.lab.training.conditions import conditions

Trial = dict[str, Any]


def parser(about: str, trials: int) -> argparse.ArgumentParser:
    """The options that all stress commands share."""
    made = argparse.ArgumentParser(description=about)
    made.add_argument("--trials", type=int, default=trials)
    made.add_argument("--seed", type=int, default=0, help="of everything random in the trials")
    made.add_argument("--log", type=Path, help="keep each trial here; the same command goes on")
    made.add_argument("--json", type=Path, help="write the record here")
    return made


def carry_on(
    numbers: Iterable[int], log: Path | None, trial: Callable[[int], Trial]
) -> list[Trial]:
    """The outcome of every trial; those that the log already has are not repeated."""
    done = {t["trial"]: t for t in _logged(log)}
    outcomes: list[Trial] = []
    for number in numbers:
        if number not in done:
            began = time.perf_counter()
            outcome = {"trial": number, **trial(number)}
            outcome["seconds"] = round(time.perf_counter() - began, 3)
            _append(log, outcome)
            done[number] = outcome
        outcomes.append(done[number])
    return outcomes


def in_folder(
    name: str, trial: Callable[[int, Path], Trial], is_good: Callable[[Trial], bool]
) -> Callable[[int], Trial]:
    """A trial with a folder of its own, which is kept and named if it fails."""

    def one(number: int) -> Trial:
        folder = Path(tempfile.mkdtemp(prefix=f"sampa-{name}-{number}-"))
        result = trial(number, folder)
        if is_good(result):
            shutil.rmtree(folder)
        else:
            print(f"trial {number}: {result}; see {folder}", file=sys.stderr)
        return result

    return one


def write_record(name: str, options: argparse.Namespace, summary: dict[str, Any]) -> None:
    """If that was asked for: the figures with all that is needed to believe them."""
    if options.json is None:
        return
    command = f"python -m tools.stress.{name} --trials {options.trials} --seed {options.seed}"
    record = {"command": command, **summary, "conditions": conditions()}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(record, indent=1) + "\n")


def _logged(log: Path | None) -> list[Trial]:
    if log is None or not log.exists():
        return []
    return [json.loads(line) for line in log.read_text().splitlines()]


def _append(log: Path | None, outcome: Trial) -> None:
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as handle:
            handle.write(json.dumps(outcome) + "\n")
