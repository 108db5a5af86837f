"""Damaged checkpoints, whole and sharded, run files, caches and archives, and who reads them.

    python -m tools.stress.fuzz --trials 100000 --json results/reliability/fuzz.json

Damage is flipped bits, cut and repeated spans, other values, JSON that is nested deeply, and what
stands in place of a file: a pipe, a link to a device, a folder, a terabyte of nothing.

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
from pathlib import Path

from tools.stress.guard import Guard
from tools.stress.mutations import TRACE
from tools.stress.records import Summary, main
from tools.stress.targets import TARGETS, Target, open_targets

MEMORY = Path("/dev/shm")  # where it exists, much faster than a disk


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


def fuzz(trials: int, seed: int = 0, _log: Path | None = None) -> Summary:
    """Carry out the trials, which go round the targets; they are quick, no log of them is kept."""
    guard, outcomes = Guard(), {name: Counter[str]() for name in TARGETS}
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="sampa-fuzz-", dir=where) as folder:
        targets = list(open_targets(Path(folder)).items())
        with guard.allowing(Path(folder)):
            for number in range(trials):
                name, target = targets[number % len(targets)]
                outcome = trial(target, random.Random(f"fuzz {seed} {number}"))
                if outcome[:3].isupper():
                    print(f"trial {number}, {name}: {outcome}", file=sys.stderr)
                    outcome = outcome.split(":")[0]
                outcomes[name][outcome] += 1
        traces = [p for p in (Path(TRACE), Path(folder) / TRACE) if p.exists()]
    for seen in guard.seen[:20]:
        print(seen, file=sys.stderr)
    everything = sum(outcomes.values(), Counter())
    return {
        "trials": everything.total(),
        "failures": sum(n for outcome, n in everything.items() if outcome[:3].isupper()),
        "run_or_written_elsewhere": len(guard.seen) + len(traces),
        "outcomes": {name: dict(sorted(found.items())) for name, found in outcomes.items()},
    }


def _is_good(summary: Summary) -> bool:
    return summary["failures"] == summary["run_or_written_elsewhere"] == 0


if __name__ == "__main__":
    sys.exit(main("fuzz", __doc__, 100_000, fuzz, _is_good))
