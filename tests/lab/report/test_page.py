"""The page: complete, self-contained, escaped, and the same for the same files."""

from __future__ import annotations

import html
import json
import re
import shutil
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sampa.lab.report import make_report
from tests.lab.report.folders import CONDITIONS, a_run, write_grid, write_run

EVIL = "<script>alert('x')</script>"


class Outline(HTMLParser):
    """Tags, ids, addresses and headings of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]


def page_of(root: Path) -> str:
    return make_report([root]).html


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = write_grid(tmp_path_factory.mktemp("page") / "runs")
    paper = {"metric": "accuracy", "values": {"sam": [94.26, 0.7]}}
    (root / "paper.json").write_text(json.dumps(paper))
    write_run(root / "half", a_run("asam"), finished=False)
    return page_of(root)


def test_the_page_shows_every_part(page: str) -> None:
    for text in (
        "3 methods on toy",
        "9 finished runs",
        "seeds 0–2",
        "Highest mean test accuracy: sampa, 93.00 ± 1.00 (n = 3).",
        "The paper’s values beside ours",
        "Validation accuracy",
        "Training loss",
        "Sharpness gap",
        "Cosine of the gradients",
        "Test accuracy against time",
        "0123456789ab",
        "unfinished: 3 epochs and no result.json",
    ):
        assert text in html.unescape(page), text


def test_the_page_refers_to_nothing_outside_itself(page: str) -> None:
    outline = Outline(page)
    inside = {f"#{name}" for name in outline.ids} | {"data:,"}
    assert set(outline.addresses) <= inside
    assert "@import" not in page
    assert "url(http" not in page


def test_ids_are_unique(page: str) -> None:
    ids = Outline(page).ids
    assert len(ids) == len(set(ids))


def test_headings_go_down_one_level_at_a_time(page: str) -> None:
    levels = [int(tag[1]) for tag in Outline(page).tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))


def test_every_chart_has_words(page: str) -> None:
    charts = re.findall(r'<div class="chart"><div role="img" aria-label="([^"]+)">', page)
    assert len(charts) == 6
    assert charts[0].startswith("Validation accuracy. Mean over seeds, from first to last epoch.")


def test_the_same_files_give_the_same_page_wherever_they_are(tmp_path: Path) -> None:
    first = write_grid(tmp_path / "a" / "runs")
    shutil.copytree(first, tmp_path / "b" / "runs")
    assert page_of(first) == page_of(tmp_path / "b" / "runs")


def test_text_from_records_stays_text(tmp_path: Path) -> None:
    """Everything that a record can say, with markup in it."""
    root = tmp_path / "runs"
    conditions = {**CONDITIONS, "commit": EVIL, EVIL: EVIL}
    test = {EVIL: 90.0}
    names: dict[str, Any] = {"name": EVIL, "about": EVIL}
    write_run(root / "a", a_run(EVIL, **names), conditions=conditions, test=test)
    write_run(root / "b", a_run("sgd", **names, method_options={EVIL: 1}), test=test)
    write_run(root / "script>", a_run("sam", **names), finished=False)
    paper = {"metric": EVIL, "values": {EVIL: 91.0}, "source": EVIL}
    (root / "paper.json").write_text(json.dumps(paper))
    page = page_of(root)
    assert Outline(page).tags.count("script") == 1  # ours
    assert EVIL not in page
    assert EVIL in html.unescape(page)


def test_names_with_mathematics_or_strange_letters_are_shown(tmp_path: Path) -> None:
    write_run(tmp_path / "run", a_run("a$b_{", name="数据 $\\frac$ \ud800"))
    assert "数据 $\\frac$" in page_of(tmp_path)


def test_no_finished_run_still_makes_a_page_with_the_reasons(tmp_path: Path) -> None:
    write_run(tmp_path / "half", a_run(), finished=False)
    made = make_report([tmp_path])
    assert (made.runs, made.left_out) == (0, 1)
    assert "No finished runs" in made.html
    assert "unfinished: 3 epochs" in made.html


def test_a_run_without_epochs_is_shown_without_curves(tmp_path: Path) -> None:
    write_run(tmp_path / "run", a_run())
    (tmp_path / "run" / "metrics.jsonl").unlink()
    page = page_of(tmp_path)
    assert page.count('role="img"') == 1  # time alone


def test_seconds_from_different_conditions_come_with_a_warning(tmp_path: Path) -> None:
    warning = "do not compare their seconds"
    write_run(tmp_path / "a", a_run(seed=0))
    assert warning not in page_of(tmp_path)
    write_run(tmp_path / "b", a_run(seed=1), conditions={**CONDITIONS, "threads": 2})
    page = page_of(tmp_path)
    assert warning in page
    assert "1 (1 run)<br>2 (1 run)" in page


def test_a_commit_that_differs_is_said_and_does_not_forbid_comparing_seconds(
    tmp_path: Path,
) -> None:
    write_run(tmp_path / "a", a_run(seed=0))
    assert "Not the same for all runs" not in page_of(tmp_path)
    write_run(tmp_path / "b", a_run(seed=1), conditions={**CONDITIONS, "commit": "other"})
    page = page_of(tmp_path)
    assert "Not the same for all runs: commit (see the conditions)." in page
    assert "do not compare" not in page


def test_seconds_from_a_busy_machine_come_with_a_warning(tmp_path: Path) -> None:
    write_run(tmp_path / "a", a_run(seed=0), seconds=10.0)
    write_run(tmp_path / "b", a_run(seed=1), seconds=16.0)
    assert "as on a busy machine: do not compare." in page_of(tmp_path)


def test_hyperparameters_are_listed_with_their_defaults(page: str) -> None:
    assert "rho = 0.1, lam = 0.2" in page


def test_runs_over_lambda_get_a_chart_of_their_own(tmp_path: Path) -> None:
    scores = {"sgd": (90.0,), "sampa-0": (92.0,), "sampa": (94.0,)}
    root = write_grid(tmp_path, scores, rhos={"sampa-0": 0.1, "sampa": 0.1})
    page = html.unescape(page_of(root))
    assert "Test accuracy of sampa over λ. λ = 0: 92; λ = 0.2: 94." in page
    assert "Mean ± standard deviation over seeds, ρ = 0.1 throughout. Dashed: sgd." in page


def test_a_single_epoch_is_no_curve(tmp_path: Path) -> None:
    page = page_of(write_grid(tmp_path / "runs", epochs=1))
    assert "Validation accuracy" not in page
    assert "Test accuracy against time" in page
