"""The one main of all stress commands: trials that can be continued, and the record of them."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sampa.lab.conditions import Conditions

Trial = dict[str, Any]
Summary = dict[str, Any]

SENTENCES = {
    "kill": "{trials} trials, {interrupted} interrupted, {identical} identical",
    "kill_sharded": "{trials} trials with sharded weights, {interrupted} interrupted, {identical} "
    "identical",
    "sigterm": "{trials} trials, {stopped_together} saved the same step on all ranks and exited, "
    "{identical} identical after resuming",
    "interrupts": "{interrupts} interrupts, {inside_a_step} of them inside a step, with {methods} "
    "methods: {left_behind} left something half-done",
    "fuzz": "{trials} damaged files, {failures} read silently or without a clear error, "
    "{run_or_written_elsewhere} run or written elsewhere",
    "peers": "{noticed_and_told} of {trials} told by rank, batch and cause; a death after at most "
    "{seconds_after_a_death[most]} s, a hang {seconds_after_the_timeout_of_a_hang[most]} s after "
    "the timeout",
    "integrity": "time spent comparing replicas, waits for the other rank included: {cost}",
}


def in_words(name: str, summary: Summary) -> str:
    """What a command found, in a sentence."""
    shares = [
        f"{cost['percent_of_a_step']} % of a step of {cost['step_milliseconds']} ms ({case})"
        for case, cost in summary.get("cost", {}).items()
    ]
    return SENTENCES[name].format(**summary | {"cost": ", ".join(shares)})


def main(
    name: str,
    about: str | None,
    trials: int,
    carry_out: Callable[[int, int, Path | None], Summary],
    is_good: Callable[[Summary], bool],
) -> int:
    """`python -m tools.stress.NAME`: carry out trials, print the outcome, write the record.

    Args:
        name: Of the command, and of its record.
        about: Its help.
        trials: How many, if not told.
        carry_out: Given their number, the seed and the log: what came of them.
        is_good: Whether that is as promised.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--trials", type=int, default=trials)
    parser.add_argument("--seed", type=int, default=0, help="of everything random in the trials")
    parser.add_argument("--log", type=Path, help="keep each trial here; the same command goes on")
    parser.add_argument("--json", type=Path, help="write the record here")
    parser.add_argument("--allow-dirty", action="store_true", help="record uncommitted source too")
    options = parser.parse_args()
    if options.json is not None:
        Conditions.now().require_committed("this command", allow_dirty=options.allow_dirty)
    summary = carry_out(options.trials, options.seed, options.log)
    print(in_words(name, summary))
    print(json.dumps(summary))
    if options.json is not None:
        command = f"python -m tools.stress.{name} --trials {options.trials} --seed {options.seed}"
        record = {"command": command, **summary, "conditions": Conditions.now().values}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if is_good(summary) else 1


def run_trials(
    name: str,
    trial: Callable[[int, int, Path], Trial],
    is_good: Callable[[Trial], bool],
    numbers: range,
    seed: int,
    log: Path | None,
) -> list[Trial]:
    """The outcome of every trial; those that the log has are not repeated.

    Args:
        name: Of the folders.
        trial: Given its number, the seed and a folder of its own, which is kept if it fails.
        is_good: Whether a trial went as promised.
        numbers: Of the trials.
        seed: Of everything random.
        log: A line for each trial that is done; none is kept if not given.
    """
    lines = log.read_text().splitlines() if log is not None and log.exists() else []
    done = {t["trial"]: t for t in map(json.loads, lines)}
    for number in numbers:
        if number in done:
            continue
        began = time.perf_counter()
        folder = Path(tempfile.mkdtemp(prefix=f"sampa-{name}-{number}-"))
        outcome = {"trial": number, **trial(number, seed, folder)}
        outcome["seconds"] = round(time.perf_counter() - began, 3)
        if is_good(outcome):
            shutil.rmtree(folder)
        else:
            print(f"{outcome}; see {folder}", file=sys.stderr)
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a") as handle:
                handle.write(json.dumps(outcome) + "\n")
        done[number] = outcome
    return [done[number] for number in numbers]
