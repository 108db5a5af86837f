"""The README's numbers and picture are those of the records."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sampa.lab.reproduce.idea import LEFT, picture
from sampa.lab.reproduce.over_time import REACHED
from sampa.lab.reproduce.readme import (
    DRAWN,
    MARKED_BLOCKS,
    OVER_TIME_ID,
    PICTURE,
    accuracy_differences,
    markers,
    read_records,
    updated,
)
from sampa.lab.results.charts import Chart, Line
from sampa.lab.results.outcome import Entry, Outcome

ROOT = Path(__file__).parents[3]
RECORDS = read_records(ROOT / "results")
SVG = "{http://www.w3.org/2000/svg}"


def test_the_readme_has_what_the_command_writes() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert updated(readme, RECORDS) == readme, "run make readme"


def test_the_picture_is_what_the_command_draws() -> None:
    drawn = picture(RECORDS.benches[DRAWN])
    assert (ROOT / PICTURE).read_text(encoding="utf-8") == drawn, "run make readme"


def test_lengths_in_the_picture_are_to_scale() -> None:
    """SAM's gradients end after twice as long where its step takes twice as long."""
    bench = RECORDS.benches[DRAWN]
    twice = replace(bench, milliseconds={**bench.milliseconds, "sam": 200.0, "sampa": 100.0})
    rects = ElementTree.fromstring(picture(twice)).iter(f"{SVG}rect")
    ends = {"sam": 0.0, "sampa": 0.0}
    for rect in rects:
        if (method := rect.attrib["class"]) in ends:
            end = float(rect.attrib["x"]) + float(rect.attrib["width"]) + 2 - LEFT
            ends[method] = max(ends[method], end)
    assert ends["sam"] == pytest.approx(2 * ends["sampa"], abs=0.2)


def test_rows_that_are_means_or_times_are_no_experiments_of_their_own() -> None:
    rows = [c.row for c in accuracy_differences(RECORDS)]
    assert "Average" not in rows
    assert not [name for name in rows if "time" in name]
    assert len(rows) == len(set(rows))


def test_the_counts_are_those_of_the_records() -> None:
    """Counted again, from the files themselves."""
    surely = {"above": 0, "below": 0}
    for c in accuracy_differences(RECORDS):
        if abs(c.ours.mean) >= c.ours.margin:
            surely["above" if c.ours.mean > 0 else "below"] += 1
    text = " ".join(MARKED_BLOCKS["speed"](RECORDS))
    assert f"above SAM in {surely['above']}, below in {surely['below']}," in text
    record = json.loads((ROOT / "results" / "bench" / f"{DRAWN}.json").read_text())
    assert f"{record['ratios']['sam/sampa']['median']:.1f} times as fast" in text


def test_accuracy_over_time_comes_first_once_it_is_recorded() -> None:
    line = Line("SAM", [1.0, 2.0], [50.0, 60.0], [49.0, 59.0], [51.0, 61.0])
    chart = Chart("curves", "Accuracy over time", "minutes", "accuracy", [line], "Steps times.")
    reached = Entry(REACHED, "SAM", {0: 2.0, 1: 4.0}, kind="median")
    outcome = Outcome(OVER_TIME_ID, "", "cpu", "all images", "", entries=(reached,))
    outcome = replace(outcome, charts=(chart,))
    with_it = replace(RECORDS, outcomes={**RECORDS.outcomes, OVER_TIME_ID: outcome})
    first, *others = MARKED_BLOCKS["speed"](with_it)
    assert first.endswith("(results/reproduce/accuracy-over-time/curves.svg)")
    assert "Steps times." in others[1]
    assert "SAM 3.0 (2 runs)" in others[3]
    assert others[5:] == MARKED_BLOCKS["speed"](
        replace(with_it, outcomes={k: v for k, v in with_it.outcomes.items() if k != OVER_TIME_ID})
    )


def test_what_is_around_the_blocks_stays() -> None:
    empty = "".join(f"before {n}\n{markers(n)[0]}\nold\n{markers(n)[1]}\n" for n in MARKED_BLOCKS)
    text = updated(empty + "after\n", RECORDS)
    assert "old" not in text
    assert text.endswith("<!-- end of results -->\nafter\n")
    assert text.count("before") == len(MARKED_BLOCKS)
    assert updated(text, RECORDS) == text


def test_what_is_written_by_hand_fits_about_a_screen() -> None:
    """A reader decides there; what does not help to decide is in docs."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for begin, end in map(markers, MARKED_BLOCKS):
        text = text[: text.index(begin)] + text[text.index(end) :]
    assert len(text.splitlines()) <= 90
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 15


def test_a_readme_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"README\.md must have"):
        updated("no markers", RECORDS)
