"""Damaged checkpoints, manifests, run files, caches and archives, read by the code that reads them.

    python -m tools.stress.fuzz --trials 100000 --json results/reliability/fuzz.json

Each trial must end in one of two ways: the documented error with a message that names the file, or
exactly what the undamaged file gives. (Where a file has no hash, or one that was made right again,
it may also be read as other data.) Nothing is run, nothing is written outside the folder.
"""

from __future__ import annotations

import random
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.stress.guard import Guard
from tools.stress.mutations import TRACE
from tools.stress.records import parser, write_record
from tools.stress.targets import TARGETS, Target, open_targets

MEMORY = Path("/dev/shm")  # much faster than a disk, where it is there


def trial(target: Target, rng: random.Random) -> str:
    """What came of one damaged file; anything in capital letters is a failure."""
    changed = target.damage(rng)
    try:
        found = target.read()
    except target.error as error:
        named = any(name in str(error) for name in (str(target.folder), *target.names))
        return "refused" if named else f"NOT NAMED: {error!r:.300}"
    except BaseException:
        return f"CRASHED: {traceback.format_exc(limit=-3)}"
    finally:
        target.restore()
    if not changed:
        return "unchanged"
    if found == target.expected:
        return "read as before"
    return "READ SILENTLY" if target.detects else "read as other data"


def fuzz(trials: int, seed: int, folder: Path, guard: Guard) -> dict[str, Counter[str]]:
    """The outcomes by target; trials go round the targets."""
    targets = open_targets(folder)
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in TARGETS}
    with guard.allowing(folder):
        for number in range(trials):
            name = list(targets)[number % len(targets)]
            rng = random.Random(f"fuzz {seed} {number}")
            outcome = trial(targets[name], rng)
            if outcome[:3].isupper():
                print(f"trial {number}, {name}: {outcome}", file=sys.stderr)
                outcome = outcome.split(":")[0]
            outcomes[name][outcome] += 1
    return outcomes


def summarize(outcomes: dict[str, Counter[str]], guard: Guard, folder: Path) -> dict[str, Any]:
    everything = sum(outcomes.values(), Counter())
    traces = [str(p) for p in (Path(TRACE), folder / TRACE) if p.exists()]
    return {
        "trials": everything.total(),
        "failures": sum(n for outcome, n in everything.items() if outcome[:3].isupper()),
        "run_or_written_elsewhere": len(guard.seen) + len(traces),
        "outcomes": {name: dict(sorted(found.items())) for name, found in outcomes.items()},
    }


def run(trials: int, seed: int) -> dict[str, Any]:
    guard = Guard()
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="sampa-fuzz-", dir=where) as name:
        outcomes = fuzz(trials, seed, Path(name), guard)
        for seen in guard.seen[:20]:
            print(seen, file=sys.stderr)
        return summarize(outcomes, guard, Path(name))


def main(args: Sequence[str] | None = None) -> int:
    options = parser(__doc__ or "", trials=100_000).parse_args(args)
    summary = run(options.trials, options.seed)
    print(f"{summary['trials']} trials, {summary['failures']} failures, ", end="")
    print(f"{summary['run_or_written_elsewhere']} times something was run or written elsewhere")
    for name, found in summary["outcomes"].items():
        print(f"  {name}: {found}")
    write_record("fuzz", options, summary)
    return 1 if summary["failures"] or summary["run_or_written_elsewhere"] else 0


if __name__ == "__main__":
    sys.exit(main())
