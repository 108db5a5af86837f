"""docs/performance.md says what the records in results/bench say."""

from __future__ import annotations

from tools.performance_tables import PAGE, updated


def test_the_tables_are_those_of_the_records() -> None:
    page = PAGE.read_text()
    assert updated(page) == page
