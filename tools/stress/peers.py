"""How soon a rank notices that another died (kill -9) or hangs (SIGSTOP).

    python -m tools.stress.peers --trials 40 --json results/reliability/peers.json

Half of the trials kill, half stop a rank for longer than the timeout. The time runs from the signal
to the end of the other rank's process, its message printed; a stopped rank is then woken, and must
find out as well.
"""

from __future__ import annotations

import random
import re
import signal
import statistics
import sys
from pathlib import Path

from tests.lab.training.runs import tiny_run
from tools.stress.records import Summary, Trial, main, run_trials
from tools.stress.sessions import session
from tools.stress.watch import draw_blow

EPOCHS = 6
TIMEOUT = 3.0
PHASES = ("step", "exchange", "evaluation")
TIMES, DELAYS = {"": EPOCHS - 2}, {"": 0.005}
MESSAGE = re.compile(r"StepFailed: rank (\d), batch \d+: RuntimeError: .*lost the other ranks")


def trial(number: int, seed: int, folder: Path) -> Trial:
    rng = random.Random(f"peers {seed} {number}")
    dies = number % 2 == 0
    sent = signal.SIGKILL if dies else signal.SIGSTOP
    blow = draw_blow(rng, PHASES, ((0,), (1,)), TIMES, DELAYS, sent, least=2)
    (victim,) = blow.ranks
    timeout = 240.0 if dies else TIMEOUT
    run = tiny_run(epochs=EPOCHS)
    ended = session(
        run, folder / "run", folder / "session", world=2, blow=blow, save_every=1, timeout=timeout
    )
    told = {int(rank) for rank in MESSAGE.findall(ended.output)}
    expected = {1 - victim} if dies else {0, 1}
    late = ended.noticed - (0 if dies else TIMEOUT)
    right = bool(ended.hit) and told == expected and ended.codes[1 - victim] == 1
    if not right:
        print(f"trial {number}: {blow} {ended}", file=sys.stderr)
    return {"kind": "death" if dies else "hang", "late": late, "right": right}


def peers(trials: int, seed: int = 0, log: Path | None = None) -> Summary:
    """Carry out the trials."""
    outcomes = run_trials("peers", trial, lambda t: t["right"], range(trials), seed, log)

    def seconds(kind: str) -> dict[str, float]:
        late = sorted(t["late"] for t in outcomes if t["kind"] == kind)
        return {"median": round(statistics.median(late), 3), "most": round(late[-1], 3)}

    return {
        "trials": len(outcomes),
        "noticed_and_told": sum(t["right"] for t in outcomes),
        "seconds_after_a_death": seconds("death"),
        "seconds_after_the_timeout_of_a_hang": seconds("hang"),
        "timeout": TIMEOUT,
    }


if __name__ == "__main__":
    sys.exit(main("peers", __doc__, 40, peers, lambda s: s["noticed_and_told"] == s["trials"]))
