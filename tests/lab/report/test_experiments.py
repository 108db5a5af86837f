"""The paper's experiments in words: findings, notes, and where recorded runs belong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sampa.lab.report.collect import collect, collect_outcomes
from sampa.lab.report.experiments import Count, counts, experiment_view, finding, sentence
from sampa.lab.report.groups import group
from sampa.lab.report.notes import Block, Piece, blocks
from sampa.lab.report.view import page_view
from sampa.lab.reproduce.outcome import Entry, Outcome, Recorded
from sampa.lab.reproduce.paper import Value
from tests.lab.report.folders import a_run, write_run

A = Entry("row", "a", {0: 90.0, 1: 92.0, 2: 94.0}, Value(95.0))
B = Entry("row", "SAMPa-0.2", {0: 91.0, 1: 94.0, 2: 97.0}, Value(95.5))
OUTCOME = Outcome(
    *("tab-x", "a title", "cpu", "about", "tab:x"),
    entries=(A, B),
    pairs=(("SAMPa-0.2", "a"), ("a", "SAMPa-0.2")),
)


def without_paper(outcome: Outcome) -> Outcome:
    return replace(outcome, entries=tuple(replace(e, paper=None) for e in outcome.entries))


def test_verdicts_are_counted_in_a_fixed_order() -> None:
    unlike = replace(B, row="other", paper=Value(90.0))
    found = replace(OUTCOME, entries=(A, B, replace(A, row="other"), unlike))
    assert counts(found.comparisons()) == (
        *(Count(2, "as in the paper"), Count(2, "not as in the paper")),
    )
    assert [count.kind for count in counts(found.comparisons())] == ["agrees", "differs"]


def test_without_the_papers_differences_ours_are_counted() -> None:
    found = replace(without_paper(OUTCOME), pairs=(("SAMPa-0.2", "a"),))
    assert finding(found) == "Against a: 1 above."


def test_a_fact_says_more_than_a_count() -> None:
    assert finding(replace(OUTCOME, facts=("A fact.", "Another."))) == "A fact."


def test_without_differences_sampas_value_stands_beside_the_papers() -> None:
    assert finding(replace(OUTCOME, pairs=())) == (
        "Row, SAMPa-0.2: 94.00 ± 3.00; in the paper 95.5."
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cosine above 0.99", "Cosine above 0.99."),
        ("V_t descends.", "V_t descends."),
        ("λ = 0.2 was chosen", "λ = 0.2 was chosen."),
        ("mSAM, alone", "mSAM, alone."),
        ("", ""),
    ],
)
def test_a_sentence_has_a_capital_unless_it_begins_with_a_name(text: str, shown: str) -> None:
    assert sentence(text) == shown


def test_columns_without_anything_are_left_out() -> None:
    view = experiment_view(Recorded(without_paper(OUTCOME)), "x")
    assert view.entries.columns == ("", "method", "ours", "n")
    assert not view.has_paper
    assert experiment_view(Recorded(OUTCOME), "x").entries.columns[2] == "paper"


def test_notes_become_headings_paragraphs_items_and_code() -> None:
    text = "## A heading\nwith `code` in\none line\n\n- first\n- second\n  goes on\n"
    assert blocks(text) == (
        Block("heading", (Piece("A heading"),)),
        Block("text", (Piece("with "), Piece("code", True), Piece(" in one line"))),
        Block("item", (Piece("first"),)),
        Block("item", (Piece("second goes on"),)),
    )


def test_a_single_backtick_stays_as_it_is() -> None:
    assert blocks("a ` b") == (Block("text", (Piece("a ` b"),)),)


def test_runs_belong_to_their_experiment_in_the_order_of_its_rows(tmp_path: Path) -> None:
    for i, name in enumerate(("tab-x-cpu: z", "tab-x-cpu: b", "toy")):
        write_run(tmp_path / str(i), replace(a_run(), name=name))
    (tmp_path / "results.json").write_text(json.dumps(OUTCOME.as_json()), encoding="utf-8")
    (tmp_path / "notes.md").write_text("Said by hand.", encoding="utf-8")
    found = collect([tmp_path])
    rows = tuple(replace(A, row=row) for row in ("z", "b"))
    shown = [replace(r, outcome=replace(r.outcome, entries=rows)) for r in found.outcomes]
    recipes, problems = group(found.records)
    view = page_view(recipes, problems, shown)
    (section,) = view.sections
    assert [section.row(part) for part in section.recipes] == ["z", "b"]
    assert [part.recipe.name for part in view.recipes] == ["toy"]
    assert section.experiment.notes == (Block("text", (Piece("Said by hand."),)),)


def test_outcomes_come_in_the_papers_order_and_strangers_last(tmp_path: Path) -> None:
    for name in ("a-stranger", "tab-noise", "fig-toy"):
        (tmp_path / name).mkdir()
        text = json.dumps(replace(OUTCOME, id=name).as_json())
        (tmp_path / name / "results.json").write_text(text, encoding="utf-8")
    found = collect_outcomes([tmp_path]).found
    assert [r.outcome.id for r in found] == ["fig-toy", "tab-noise", "a-stranger"]
