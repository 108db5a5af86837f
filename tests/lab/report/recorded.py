"""A page of all recorded experiments, a hostile one, and a recipe that belongs to none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from sampa.lab.conditions import Conditions
from sampa.lab.report import make_report
from sampa.lab.reproduce.catalog import EXPERIMENTS
from sampa.lab.results.charts import Chart, Line
from sampa.lab.results.outcome import Entry, Outcome
from sampa.lab.results.paper import Value
from tests.lab.report.folders import EVIL, write_grid

RECORDS = Path(__file__).parents[3] / "results" / "reproduce"
RECORDED = [name for name in EXPERIMENTS if (RECORDS / name / "results.json").exists()]
WITH_RUNS = "fig-gradient-gap"  # the smallest that has any
SCORES = {"sgd": (90.0, 91.0), "sam": (91.0, 93.0), "sampa": (92.0, 93.0), "asam": (9.25,)}
BESIDE = "beside"  # the recipe


def hostile() -> Outcome:
    """An experiment whose every word is markup, and whose numbers sort badly as text."""
    entries = (
        Entry(EVIL, EVIL, {0: 9.0, 1: 9.5}, Value(95.0, 0.1)),
        Entry(EVIL, "ten", {0: 10.0, 1: 11.0}, Value(9.0)),
        Entry(EVIL, "minus", {0: -5.0, 1: -6.0}),
    )
    line = Line(EVIL, [1.0, 2.0], [3.0, 4.0])
    return Outcome(
        id=EVIL,
        title=EVIL,
        scale="cpu",
        about=EVIL,
        label=EVIL,
        claim=EVIL,
        unit=EVIL,
        entries=entries,
        pairs=(("ten", EVIL), ("minus", EVIL)),
        charts=(Chart(EVIL, EVIL, EVIL, EVIL, [line, line], EVIL),),
        facts=(EVIL,),
        conditions=Conditions({EVIL: EVIL}),
    )


def write_page(root: Path) -> Path:
    """The page in a file below a folder that the records are copied to."""
    for name in RECORDED:
        (root / name).mkdir()
        for file in ("results.json", "notes.md", "runs.jsonl" if name == WITH_RUNS else ""):
            if file and (RECORDS / name / file).exists():
                shutil.copy(RECORDS / name / file, root / name / file)
    (root / "evil").mkdir()
    (root / "evil" / "results.json").write_text(json.dumps(hostile().as_json()), encoding="utf-8")
    (root / "evil" / "notes.md").write_text(f"## {EVIL}\n\n{EVIL} `{EVIL}`\n", encoding="utf-8")
    write_grid(root / "runs", SCORES, name=BESIDE)
    file = root / "report.html"
    file.write_text(make_report([root]).html, encoding="utf-8")
    return file
