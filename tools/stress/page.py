"""The table of recorded figures in docs/reliability.md, made from results/reliability.

python -m tools.stress.page
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from sampa.lab.results.table import Table, as_markdown, row
from tools.stress.records import SENTENCES, in_words

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
RESULTS = ROOT / "results" / "reliability"
PLACE = re.compile(r"(<!-- recorded -->\n).*?(<!-- /recorded -->)", re.DOTALL)


def read_record(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def recorded() -> str:
    """One row a record."""
    records = {n: read_record(n) for n in SENTENCES if (RESULTS / f"{n}.json").exists()}
    rows = tuple(
        row(f"`{r['command']}`", in_words(name, r), r["conditions"]["commit"])
        for name, r in records.items()
    )
    return "\n".join([*as_markdown(Table("", ("Command", "Outcome", "Commit"), rows)), ""])


if __name__ == "__main__":
    page = PAGE.read_text()
    PAGE.write_text(PLACE.sub(lambda m: f"{m[1]}\n{recorded()}\n{m[2]}", page))
