"""Figures of a page: what is kept is what would be drawn, or it is not used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sampa.lab.data.places import cache_folder
from sampa.lab.results import figures as module
from sampa.lab.results.charts import Chart, Line
from sampa.lab.results.drawing import page_chart
from sampa.lab.results.figures import DRAWN_HERE, Figures, figures, name_of

CHART = Chart("one", "A title", "epoch", "loss", [Line("sgd", [1.0, 2.0], [3.0, 2.5])])


@pytest.fixture(autouse=True)
def drawings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A cache of our own; the names of the charts that are drawn in this process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    drawn: list[str] = []

    def counted(chart: Chart, prefix: str) -> str:
        drawn.append(chart.name)
        return page_chart(chart, prefix)

    monkeypatch.setattr(module, "draw_figure", counted)
    return drawn


def kept_files() -> list[Path]:
    return sorted((cache_folder(None) / "figures").iterdir())


def test_a_figure_is_drawn_once(drawings: list[str]) -> None:
    first = figures([(CHART, "a"), (CHART, "b"), (CHART, "a")])
    assert first == [page_chart(CHART, "a"), page_chart(CHART, "b"), page_chart(CHART, "a")]
    assert drawings == ["one", "one"]
    assert figures([(CHART, "b"), (CHART, "a")]) == [first[1], first[0]]
    assert drawings == ["one", "one"]


@pytest.mark.parametrize(
    "changes",
    [
        {"title": "Another"},
        {"lines": [Line("sgd", [1.0, 2.0], [3.0, 2.4])]},
        {"lines": [Line("sgd", [1.0, 2.0], [3.0, float("nan")])]},
        {"lines": [replace(CHART.lines[0], look=5)]},
        {"log_y": True},
    ],
)
def test_another_chart_is_another_figure(changes: dict[str, Any]) -> None:
    assert name_of(replace(CHART, **changes), "a") != name_of(CHART, "a")


def test_a_change_of_what_draws_makes_kept_figures_useless(
    drawings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    figures([(CHART, "a")])
    monkeypatch.setattr(module, "drawn_by", lambda: ["another style, or matplotlib"])
    figures([(CHART, "a")])
    assert len(drawings) == 2


def test_what_draws_is_known_by_all_its_files() -> None:
    """Every module of ours that drawing imports is among those that are hashed."""
    import ast

    folder = Path(module.__file__).parent

    def imported(name: str) -> set[str]:
        tree = ast.parse((folder / name).read_text(encoding="utf-8"))
        found = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module]
        return {f"{m.rpartition('.')[2]}.py" for m in found if m.startswith("sampa.lab.results.")}

    needed, new = {"drawing.py"}, {"drawing.py"}
    while new:
        new = {other for name in new for other in imported(name)} - needed
        needed |= new
    assert needed == set(module.DRAWN_BY)


@pytest.mark.parametrize("damage", [b"", b"x", b"0" * 64 + b"\n<svg>"])
def test_a_damaged_figure_is_drawn_anew(drawings: list[str], damage: bytes) -> None:
    (good,) = figures([(CHART, "a")])
    (file,) = kept_files()
    content = file.read_bytes()
    file.write_bytes(damage or content[:-9])
    assert figures([(CHART, "a")]) == [good]
    assert len(drawings) == 2
    assert kept_files()[0].read_bytes() == content


def test_a_cache_that_cannot_be_written_is_as_good_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert figures([(CHART, "a")]) == [page_chart(CHART, "a")]


def test_figures_that_nobody_uses_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 4)
    wanted = [(CHART, prefix) for prefix in "abcd"]
    figures(wanted)
    names = {file.name for file in kept_files()}
    figures([(CHART, "e"), *wanted[:1]])
    left = {file.name for file in kept_files()}
    assert len(left) == 2
    assert name_of(CHART, "e") in left
    assert len(names & left) <= 1


def test_figures_take_the_places_of_their_marks_and_of_nothing_else() -> None:
    found = Figures()
    marks = [found.mark(CHART, prefix) for prefix in "ab"]
    page = found.put_into(f"1 {marks[1]} 2 {marks[0]} 3 figure-0-0; 4")
    a, b = page_chart(CHART, "a"), page_chart(CHART, "b")
    assert page == f"1 {b} 2 {a} 3 figure-0-0; 4"
    assert found.put_into("no chart") == "no chart"


@pytest.mark.slow
def test_processes_draw_the_same_as_this_one(
    drawings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "draw_figure", page_chart)
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: {0, 1})
    wanted = [(CHART, f"p{i}") for i in range(2 * DRAWN_HERE)]
    assert figures(wanted) == [page_chart(*each) for each in wanted]
