"""kill -9 at random instants, and a resumed run that must not show it.

    python -m tools.stress.kill --trials 1000 --json results/reliability/kill.json
    python -m tools.stress.kill_sharded --trials 100 --json results/reliability/kill_sharded.json

Each trial kills one or two sessions of a small run, on one rank or two, somewhere in a phase drawn
at random, and lets a last session finish. All that a run leaves behind is compared byte for byte
with an uninterrupted run: weights, base state, held gradient and batch, generator, position, best
model, metrics, result. Those of the second command are sharded, on two ranks or four.
"""

from __future__ import annotations

import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sampa.lab.training.run import BaseSpec, Run
from tests.lab.training.runs import TOTAL, tiny_run
from tools.stress.outcomes import differences, everything, reference
from tools.stress.records import Summary, Trial, main, run_trials
from tools.stress.sessions import Ended, session
from tools.stress.watch import PHASES, Blow, draw_blow

# How long a phase lasts, about, and how often it comes in the small run, about.
DELAYS = {
    **{"start": 0.3, "resume": 0.02, "step": 0.04, "exchange": 0.004, "evaluation": 0.02},
    **{"save": 0.02, "prune": 0.003, "between": 0.01, "": 0.01},
}
TIMES = {
    **{"start": 1, "resume": 1, "exchange": 2 * (TOTAL - 1), "evaluation": 3},
    **{"between": 4 * TOTAL, "": TOTAL},
}
VICTIMS = {  # by the number of ranks
    1: ((0,),),
    2: ((0,), (1,), (0, 1), (1, 0)),
    4: ((0,), (1,), (2,), (3,), (1, 0, 2, 3)),
}
SETTINGS: dict[str, Any] = {"save_every": 1, "keep": 1, "timeout": 240.0}


@dataclass(frozen=True)
class Target:
    """A run that is killed.

    Attributes:
        worlds: Numbers of ranks that a session may have.
        settings: Of its sessions, beside those of all.
        alone: How it is left alone, to compare with.
    """

    run: Run
    worlds: tuple[int, ...] = (1, 2)
    settings: dict[str, Any] = field(default_factory=dict)
    alone: dict[str, Any] = field(default_factory=dict)


def targets() -> dict[str, Target]:
    """The runs that are killed: two base optimizers, whose states differ."""
    adamw = tiny_run(base=BaseSpec("adamw", lr=0.01))
    return {"sgd": Target(tiny_run()), "adamw": Target(adamw)}


def trial(
    number: int, seed: int, folder: Path, choice: Callable[[], dict[str, Target]] = targets
) -> Trial:
    """Kill a run once or twice, let it finish, compare."""
    rng = random.Random(f"kill {seed} {number}")
    kind = rng.choice(sorted(choice()))
    target = choice()[kind]
    out, hits, worlds, ended = folder / "run", [], [], None
    kills = rng.choice((1, 1, 2))
    for attempt in range(kills + 1):
        world = rng.choice(target.worlds)
        blow = _drawn(rng, target, world, resumes=attempt > 0) if attempt < kills else None
        options = {"resume": attempt > 0, **SETTINGS, **target.settings}
        scratch = folder / f"session-{attempt}"
        ended = session(target.run, out, scratch, world=world, blow=blow, **options)
        _require_sensible(ended, blow)
        worlds.append(world)
        hits.append(ended.hit)
        if all(code == 0 for code in ended.codes):
            break
    assert ended is not None
    differing = differences(everything(out, ended), reference(target.run, **target.alone))
    return {"run": kind, "worlds": worlds, "hits": [h for h in hits if h], "differing": differing}


def _drawn(rng: random.Random, target: Target, world: int, *, resumes: bool) -> Blow:
    phases = [p for p in PHASES if world > 1 or p != "exchange"]
    phases = phases if resumes else [p for p in phases if p != "resume"]
    savers = world if target.settings.get("shard") else 1
    return draw_blow(rng, phases, VICTIMS[world], TIMES, DELAYS, savers=savers)


def _require_sensible(ended: Ended, blow: Blow | None) -> None:
    """Ranks end well, killed, or saying that they lost the others; nothing else."""
    killed = blow is not None and bool(ended.hit)
    allowed = {0, -signal.SIGKILL, 1} if killed else {0}
    if not set(ended.codes) <= allowed:
        raise RuntimeError(f"ranks ended with {ended.codes} after {blow}:\n{ended.output}")


def kill(
    trials: int,
    seed: int = 0,
    log: Path | None = None,
    choice: Callable[[], dict[str, Target]] = targets,
) -> Summary:
    """Carry out the trials."""
    strike = partial(trial, choice=choice)
    outcomes = run_trials("kill", strike, lambda t: not t["differing"], range(trials), seed, log)
    hits = Counter(hit for t in outcomes for hit in t["hits"])
    return {
        "trials": len(outcomes),
        "interrupted": sum(bool(t["hits"]) for t in outcomes),
        "identical": sum(not t["differing"] for t in outcomes),
        "kills": hits.total(),
        "kills_by_phase": dict(sorted(hits.items())),
        "trials_with_two_ranks": sum(2 in t["worlds"] for t in outcomes),
    }


if __name__ == "__main__":
    sys.exit(main("kill", __doc__, 1000, kill, lambda s: s["identical"] == s["trials"]))
