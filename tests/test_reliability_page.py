"""docs/reliability.md names tests that exist, and figures that were recorded."""

from __future__ import annotations

import re
from pathlib import Path

from tools.stress.page import PAGE, RESULTS, read_record, recorded
from tools.stress.records import SENTENCES

TESTS = Path(__file__).parent


def named() -> list[str]:
    return re.findall(r"`(test_\w+)`", PAGE.read_text())


def written() -> set[str]:
    files = [file.read_text() for file in TESTS.rglob("test_*.py")]
    return {name for text in files for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}


def test_every_test_that_the_page_names_exists() -> None:
    assert set(named()) - written() == set()


def test_every_fault_of_the_table_has_a_row() -> None:
    first = re.findall(r"^\| (\d+)(?:–(\d+))? \|", PAGE.read_text(), re.MULTILINE)
    numbers = [n for a, b in first for n in range(int(a), int(b or a) + 1)]
    assert numbers == list(range(1, 43))


def test_the_figures_on_the_page_are_the_recorded_ones() -> None:
    assert recorded() in PAGE.read_text()


def test_every_record_is_on_the_page_and_was_a_success() -> None:
    names = {file.stem for file in RESULTS.glob("*.json")}
    assert names <= set(SENTENCES)
    records = [read_record(name) for name in sorted(names)]
    resumed = [r for r in records if "identical" in r]  # killed or stopped before, sharded or not
    assert len(resumed) >= 2
    assert [r["identical"] for r in resumed] == [r["trials"] for r in resumed]
    assert read_record("interrupts")["left_behind"] == 0
    assert read_record("fuzz")["failures"] == read_record("fuzz")["run_or_written_elsewhere"] == 0
