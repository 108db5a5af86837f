"""Pages on speed say what the records in results/bench say, and name files that exist."""

from __future__ import annotations

import re

import pytest

from tools.performance_tables import (
    PAGE,
    ROOT,
    SCALING_PAGE,
    as_page_part,
    as_scaling_part,
    updated,
)


@pytest.mark.slow
def test_the_tables_are_those_of_the_records() -> None:
    page = PAGE.read_text()
    assert updated(page, as_page_part()) == page


def test_the_predictions_are_those_of_the_records() -> None:
    page = SCALING_PAGE.read_text()
    assert updated(page, as_scaling_part()) == page


@pytest.mark.parametrize(
    "page", ["docs/performance.md", "docs/scaling.md", "docs/reliability.md", "SECURITY.md"]
)
def test_files_that_a_page_names_exist(page: str) -> None:
    named = re.findall(r"`(\w[\w./]*(?:\.py|/\w+))`", (ROOT / page).read_text())
    folders = (ROOT, ROOT / "src" / "sampa")
    assert [name for name in named if not any((f / name).exists() for f in folders)] == []
