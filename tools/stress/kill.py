"""kill -9 at random instants, and a resumed run that must not show it.

    python -m tools.stress.kill --trials 1000 --json results/reliability/kill.json

Each trial kills one or two sessions of a small run, on one rank or two, somewhere in a phase drawn
at random, and lets a last session finish. All that a run leaves behind is compared byte for byte
with an uninterrupted run: weights, base state, held gradient and batch, generator, position, best
model, metrics, result.
"""

from __future__ import annotations

import random
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sampa.lab.training.run import BaseSpec, Run
from tests.lab.training.runs import TOTAL, tiny_run
from tools.stress.outcomes import differences, everything, reference
from tools.stress.records import Trial, carry_on, in_folder, parser, write_record
from tools.stress.sessions import Ended, session
from tools.stress.watch import Blow

# How long a phase lasts, about, and how often it comes in the small run, about.
DELAYS = {"start": 0.3, "resume": 0.02, "step": 0.04, "exchange": 0.004, "evaluation": 0.02}
DELAYS |= {"save": 0.02, "prune": 0.003, "between": 0.01}
TIMES = {
    "start": 1,
    "resume": 1,
    "exchange": 2 * (TOTAL - 1),
    "evaluation": 3,
    "between": 4 * TOTAL,
}
SETTINGS = {"save_every": 1, "keep": 1, "timeout": 240.0}


def runs() -> dict[str, Run]:
    """The runs that are killed: two base optimizers, whose states differ."""
    return {
        "sgd": tiny_run(),
        "adamw": tiny_run(base=BaseSpec("adamw", lr=0.01)),
    }


def draw_blow(rng: random.Random, world: int, phases: Sequence[str]) -> Blow:
    """Where and whom to hit."""
    phase = rng.choice(phases)
    victims = ((0,),) if world == 1 else ((0,), (1,), (0, 1), (1, 0))
    if phase in ("save", "prune"):
        victims = tuple(v for v in victims if v[0] == 0)  # only the first rank writes
    return Blow(
        phase=phase,
        occurrence=rng.randint(1, TIMES.get(phase, TOTAL)),
        delay=rng.uniform(0, DELAYS[phase]),
        ranks=rng.choice(victims),
    )


def trial(number: int, seed: int, folder: Path) -> Trial:
    """Kill a run once or twice, let it finish, compare."""
    rng = random.Random(f"kill {seed} {number}")
    kind = rng.choice(sorted(runs()))
    out, hits, worlds = folder / "run", [], []
    kills = rng.choice((1, 1, 2))
    for attempt in range(kills + 1):
        world = rng.choice((1, 2))
        phases = [p for p in DELAYS if world == 2 or p != "exchange"]
        phases = phases if attempt else [p for p in phases if p != "resume"]
        blow = draw_blow(rng, world, phases) if attempt < kills else None
        ended = session(
            runs()[kind],
            out,
            folder / f"session-{attempt}",
            world=world,
            blow=blow,
            resume=attempt > 0,
            **SETTINGS,
        )
        _require_sensible(ended, blow)
        worlds.append(world)
        hits.append(ended.hit)
        if all(code == 0 for code in ended.codes):
            break
    differing = differences(everything(out, ended), reference(runs()[kind]))
    return {"run": kind, "worlds": worlds, "hits": [h for h in hits if h], "differing": differing}


def _require_sensible(ended: Ended, blow: Blow | None) -> None:
    """Ranks end well, killed, or saying that they lost the others; nothing else."""
    killed = blow is not None and bool(ended.hit)
    allowed = {0, -signal.SIGKILL, 1} if killed else {0}
    if not set(ended.codes) <= allowed:
        raise RuntimeError(f"ranks ended with {ended.codes} after {blow}:\n{ended.output}")


def kill(trials: int, seed: int = 0, log: Path | None = None) -> list[Trial]:
    """Carry out the trials; the folder of one that fails is kept and named."""

    def one(number: int, folder: Path) -> Trial:
        return trial(number, seed, folder)

    return carry_on(range(trials), log, in_folder("kill", one, lambda t: not t["differing"]))


def summarize(outcomes: list[Trial]) -> dict[str, Any]:
    hits = Counter(hit for t in outcomes for hit in t["hits"])
    return {
        "trials": len(outcomes),
        "interrupted": sum(bool(t["hits"]) for t in outcomes),
        "identical": sum(not t["differing"] for t in outcomes),
        "kills": hits.total(),
        "kills_by_phase": dict(sorted(hits.items())),
        "trials_with_two_ranks": sum(2 in t["worlds"] for t in outcomes),
    }


def main(args: Sequence[str] | None = None) -> int:
    options = parser(__doc__ or "", trials=1000).parse_args(args)
    summary = summarize(kill(options.trials, options.seed, options.log))
    print(f"{summary['trials']} trials, {summary['interrupted']} interrupted, ", end="")
    print(f"{summary['identical']} identical; kills by phase: {summary['kills_by_phase']}")
    write_record("kill", options, summary)
    return 0 if summary["identical"] == summary["trials"] else 1


if __name__ == "__main__":
    sys.exit(main())
