"""The README's numbers are those of the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from sampa.lab.reproduce.readme import BEGIN, END, FIGURES, block, updated

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "results" / "reproduce"


def test_the_readme_has_what_the_command_writes() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert block(RESULTS) in readme, "run make readme"


def test_its_figures_exist() -> None:
    assert all((RESULTS / f"{figure}.svg").exists() for figure in FIGURES)


def test_what_is_around_the_block_stays() -> None:
    assert updated(f"before\n{BEGIN}\nold\n{END}\nafter\n", RESULTS) == (
        f"before\n{block(RESULTS)}\nafter\n"
    )


def test_a_readme_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"README\.md must have"):
        updated("no markers", RESULTS)
