"""The table of recorded figures in docs/reliability.md, made from results/reliability.

python -m tools.stress.page
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
RESULTS = ROOT / "results" / "reliability"
PLACE = re.compile(r"(<!-- recorded -->\n).*?(<!-- /recorded -->)", re.DOTALL)


def record(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def table() -> str:
    """One row a record."""
    rows = [_row(name, said(name)) for name in SAID if (RESULTS / f"{name}.json").exists()]
    return "\n".join(["| Command | Outcome | Commit |", "|---|---|---|", *rows, ""])


def _row(name: str, text: str) -> str:
    found = record(name)
    return f"| `{found['command']}` | {text} | {found['conditions']['commit']} |"


def said(name: str) -> str:
    found = record(name)
    shares = [
        f"{cost['percent_of_a_step']} % of a step of {cost['step_milliseconds']} ms ({problem})"
        for problem, cost in found.get("cost", {}).items()
    ]
    return SAID[name].format(**found | {"cost": ", ".join(shares)})


SAID = {
    "kill": "{trials} trials, {interrupted} interrupted, {identical} identical",
    "sigterm": "{trials} trials, {stopped_together} saved the same step on all ranks and exited, "
    "{identical} identical after resuming",
    "fuzz": "{trials} damaged files, {failures} read silently or without a clear error, "
    "{run_or_written_elsewhere} run or written elsewhere",
    "peers": "{noticed_and_told} of {trials} told by rank, batch and cause; a death after at most "
    "{seconds_after_a_death[most]} s, a hang {seconds_after_the_timeout_of_a_hang[most]} s after "
    "the timeout",
    "integrity": "time spent comparing replicas, waits for the other rank included, on a busy "
    "machine: {cost}",
}


def main() -> None:
    page = PAGE.read_text()
    PAGE.write_text(PLACE.sub(lambda m: f"{m[1]}\n{table()}\n{m[2]}", page))


if __name__ == "__main__":
    main()
