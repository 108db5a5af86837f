"""The paper's experiments in words: findings, notes, and where recorded runs belong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sampa.lab.report.collect import collect
from sampa.lab.report.experiment import (
    ExperimentView,
    counted_verdicts,
    experiment_view,
    notes_as_html,
    outcome_finding,
    sentence,
)
from sampa.lab.report.groups import group
from sampa.lab.report.page import page_view
from sampa.lab.results.outcome import Entry, Outcome
from sampa.lab.results.paper import Value
from tests.lab.report.folders import a_run, write_run

A = Entry("row", "a", {0: 90.0, 1: 92.0, 2: 94.0}, Value(95.0))
B = Entry("row", "SAMPa-0.2", {0: 92.0, 1: 94.5, 2: 97.0}, Value(95.5))
OUTCOME = Outcome(
    *("tab-x", "a title", "cpu", "about", "tab:x"),
    entries=(A, B),
    pairs=(("SAMPa-0.2", "a"), ("a", "SAMPa-0.2")),
)


def without_paper(outcome: Outcome) -> Outcome:
    return replace(outcome, entries=tuple(replace(e, paper=None) for e in outcome.entries))


def test_verdicts_are_counted_in_a_fixed_order() -> None:
    clear = replace(B, values={0: 92.4, 1: 94.5, 2: 96.6})  # four comparisons need a smaller p
    unlike = replace(clear, row="other", paper=Value(90.0))
    found = replace(OUTCOME, entries=(A, clear, replace(A, row="other"), unlike))
    counts = counted_verdicts(found.comparisons())
    assert list(counts.items()) == [("as in the paper", 2), ("not as in the paper", 2)]


def test_without_the_papers_differences_ours_are_counted() -> None:
    found = replace(without_paper(OUTCOME), pairs=(("SAMPa-0.2", "a"),))
    assert outcome_finding(found) == "Against a: 1 above."


def test_a_fact_says_more_than_a_count() -> None:
    assert outcome_finding(replace(OUTCOME, facts=("A fact.", "Another."))) == "A fact."


def test_without_differences_sampas_value_stands_beside_the_papers() -> None:
    assert outcome_finding(replace(OUTCOME, pairs=())) == (
        "Row, SAMPa-0.2: 94.50 ± 2.50; in the paper 95.5."
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
    view = experiment_view(without_paper(OUTCOME), "x")
    assert view.values.columns == ("", "method", "ours", "n")
    assert not view.has_paper
    assert experiment_view(OUTCOME, "x").values.columns[2] == "paper"


def test_notes_become_headings_paragraphs_items_and_code() -> None:
    text = "## A heading\nwith `code` in\none line\n\n- first\n- second\n  goes on\n"
    assert "".join(notes_as_html(text).split("\n")) == (
        "<h3>A heading</h3><p>with <code>code</code> inone line</p>"
        "<ul><li>first</li><li>secondgoes on</li></ul>"
    )


@pytest.mark.parametrize(
    "text", ["a ` b", "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<p>"]
)
def test_html_in_notes_stays_text(text: str) -> None:
    found = notes_as_html(f"say {text}")
    assert found.count("<") == 2  # the paragraph
    assert found.striptags() == f"say {text}"


@pytest.mark.parametrize("text", ["![x](https://a.b/c.png)", "[x](javascript:x)", "<https://a.b>"])
def test_notes_refer_to_nothing_outside_the_page(text: str) -> None:
    found = notes_as_html(text)
    assert "src=" not in found
    assert "href=" not in found


def test_runs_belong_to_their_experiment_in_the_order_of_its_rows(tmp_path: Path) -> None:
    for i, name in enumerate(("tab-x-cpu: z", "tab-x-cpu: b", "toy")):
        write_run(tmp_path / str(i), replace(a_run(), name=name))
    (tmp_path / "results.json").write_text(json.dumps(OUTCOME.as_json()), encoding="utf-8")
    (tmp_path / "notes.md").write_text("Said by hand.", encoding="utf-8")
    found = collect([tmp_path])
    rows = tuple(replace(A, row=row) for row in ("z", "b"))
    shown = [replace(outcome, entries=rows) for outcome in found.outcomes]
    recipes, left_out = group(found.runs)
    view = page_view(recipes, left_out, shown)
    experiment, recipe = view.sections
    assert isinstance(experiment, ExperimentView)
    assert list(experiment.recipes) == ["z", "b"]
    assert recipe.name == "toy"
    assert experiment.notes.strip() == "<p>Said by hand.</p>"


def test_outcomes_come_in_the_papers_order_and_strangers_last(tmp_path: Path) -> None:
    for name in ("a-stranger", "tab-noise", "fig-toy"):
        (tmp_path / name).mkdir()
        text = json.dumps(replace(OUTCOME, id=name).as_json())
        (tmp_path / name / "results.json").write_text(text, encoding="utf-8")
    assert [outcome.id for outcome in collect([tmp_path]).outcomes] == [
        "fig-toy",
        "tab-noise",
        "a-stranger",
    ]
