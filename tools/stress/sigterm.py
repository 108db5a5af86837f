"""SIGTERM at random instants: all ranks save the same step and exit, and nothing is lost.

    python -m tools.stress.sigterm --trials 100 --json results/reliability/sigterm.json

A trial sends the signal to one rank, to both, or to the launcher of `sampa train --devices 2`, in a
phase drawn at random (evaluation is one of them), and resumes.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from sampa.lab.training.recipes import find_recipe
from sampa.lab.training.run import Run
from tests.lab.training.runs import BATCHES, tiny_run
from tools.stress.outcomes import differences, everything, reference
from tools.stress.records import Summary, Trial, main, run_trials
from tools.stress.sessions import Ended, session
from tools.stress.watch import draw_blow

EPOCHS = 4
STOPPED = 128 + signal.SIGTERM
PHASES = ("step", "exchange", "evaluation", "save", "prune")
RANKS = ((0,), (1,), (0, 1))
# In the first half of the run, so that the signal comes before its end.
TIMES = {"evaluation": EPOCHS // 2, "": EPOCHS // 2 * BATCHES}
DELAYS = {"": 0.01}
SETTINGS: dict[str, Any] = {"keep": 1, "timeout": 240.0}


def trial(number: int, seed: int, folder: Path) -> Trial:
    """Stop a run, look where its ranks are, let it finish, compare."""
    rng = random.Random(f"sigterm {seed} {number}")
    through_launcher = number % 4 == 0
    run = launched_run() if through_launcher else tiny_run(epochs=EPOCHS)
    if through_launcher:
        hit, stopped = _stop_launcher(rng, folder), "launcher"
    else:
        blow = draw_blow(rng, PHASES, RANKS, TIMES, DELAYS, signal.SIGTERM)
        stopped = "rank " + " and ".join(map(str, sorted(blow.ranks)))
        ended = session(
            run, folder / "run", folder / "stopped", world=2, blow=blow, save_every=1, **SETTINGS
        )
        hit = _hit(ended)
    resumed = session(run, folder / "run", folder / "resumed", world=2, resume=True, **SETTINGS)
    expected = reference(run)
    found = everything(folder / "run", resumed)
    return {"to": stopped, "hit": hit, "differing": differences(found, expected)}


def _hit(ended: Ended) -> str:
    """Where the signal came; "" if the ranks did not all stop, and at the same step."""
    steps = {place.get("position") for place in ended.places}
    together = ended.codes == [STOPPED] * 2 and len(steps) == 1
    weights = {place.get("weights") for place in ended.places}
    return ended.hit if together and len(weights) == 1 else ""


# ---- the real command ------------------------------------------------------------------------


def launched_run() -> Run:
    return find_recipe("digits-cpu").changed(epochs=EPOCHS, base_epochs=EPOCHS)


def _stop_launcher(rng: random.Random, folder: Path) -> str:
    command = [sys.executable, "-m", "sampa", "train", "digits-cpu", "--epochs", str(EPOCHS)]
    command += ["--devices", "2", "--threads", "1", "--out", str(folder / "run")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while process.poll() is None and not (folder / "run" / "times.jsonl").exists():
        time.sleep(0.01)
    time.sleep(rng.uniform(0, 0.2))
    os.kill(process.pid, signal.SIGTERM)
    text, _ = process.communicate(timeout=600)
    last = text.splitlines()[-1] if text else ""
    said = last.startswith("stopped at batch ")
    step = int(last.split(";")[0].split()[-1]) if said else -1
    saved = folder / "run" / "checkpoints" / f"step-{step:09}"
    together = process.returncode == STOPPED and saved.exists()
    if not together:
        print(text, file=sys.stderr)
    return "anywhere" if together else ""


def sigterm(trials: int, seed: int = 0, log: Path | None = None) -> Summary:
    """Carry out the trials."""
    outcomes = run_trials(
        "sigterm", trial, lambda t: bool(t["hit"]) and not t["differing"], range(trials), seed, log
    )
    return {
        "trials": len(outcomes),
        "stopped_together": sum(bool(t["hit"]) for t in outcomes),
        "identical": sum(not t["differing"] for t in outcomes),
        "sent_to": dict(sorted(Counter(t["to"] for t in outcomes).items())),
        "by_phase": dict(sorted(Counter(t["hit"] for t in outcomes).items())),
    }


def _is_good(summary: Summary) -> bool:
    return summary["identical"] == summary["stopped_together"] == summary["trials"]


if __name__ == "__main__":
    sys.exit(main("sigterm", __doc__, 100, sigterm, _is_good))
