"""The cards in docs/methods are true: snippets run, defaults and names are those of the code."""

from __future__ import annotations

import ast
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import sampa
from sampa.cost import hyperparameters
from tests.golden import values
from tests.test_examples import ROOT, START, Section, execute, sections

FOLDER = ROOT / "docs" / "methods"
PAGES = sorted(FOLDER.glob("*.md"))
CARDS = [page for page in PAGES if page.name not in ("README.md", "combining-with-sampa.md")]
SNIPPETS = [s for page in PAGES for s in sections(str(page.relative_to(ROOT))) if s.blocks]
each_card = pytest.mark.parametrize("card", CARDS, ids=lambda page: page.stem)


def function_of(name: str) -> str:
    factory = sampa.METHODS[name]
    return (factory.func if isinstance(factory, partial) else factory).__name__


def heading(card: Path) -> tuple[str, set[str]]:
    """The class and the command-line names on a card's third line."""
    line = card.read_text().splitlines()[2]
    match = re.match(r"`sampa\.(\w+)` · command line: ", line)
    assert match, f"{card.name}: {line}"
    return match[1], set(re.findall(r"`([^`]+)`", line)) & set(sampa.METHODS)


def value_in(cell: str) -> Any:
    try:
        return ast.literal_eval(cell)
    except (SyntaxError, ValueError):
        return cell  # the name of a function, or a piece as its repr


@pytest.mark.parametrize("snippet", SNIPPETS, ids=str)
def test_snippet_runs(snippet: Section) -> None:
    execute([*START.blocks, *snippet.blocks], snippet.page, {"__name__": "__main__"})


@each_card
def test_every_card_has_a_snippet(card: Path) -> None:
    assert str(card.relative_to(ROOT)) in {s.page for s in SNIPPETS}


@each_card
def test_hyperparameters_and_their_defaults_are_those_of_the_code(card: Path) -> None:
    section = card.read_text().split("## Hyper-parameters")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", section, flags=re.MULTILINE)
    stated = {name: value_in(cell) for name, cell in rows}
    assert stated == hyperparameters(getattr(sampa, heading(card)[0]))


@each_card
def test_command_line_names_build_the_class_of_the_card(card: Path) -> None:
    built, names = heading(card)
    assert names
    assert {function_of(name) for name in names} == {built}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_golden_values_named_on_a_card_exist(page: Path) -> None:
    bullets = re.findall(r"^- Golden(?:.|\n  )*", page.read_text(), flags=re.MULTILINE)
    named = [name.rstrip("*") for bullet in bullets for name in re.findall(r"`([^`]+)`", bullet)]
    assert not [name for name in named if not any(name in row for row in values.X_3)]


def test_index_lists_every_method_with_its_class_and_card() -> None:
    rows = re.findall(
        r"^\| (`.+`) \| .+ \| `sampa\.(\w+)` \| \[.+\]\((.+)\) \|$",
        (FOLDER / "README.md").read_text(),
        flags=re.MULTILINE,
    )
    listed = {n: (cls, card) for names, cls, card in rows for n in re.findall(r"`([^`]+)`", names)}
    assert set(listed) == set(sampa.METHODS)
    assert {n: cls for n, (cls, _) in listed.items()} == {n: function_of(n) for n in listed}
    assert not [n for n, (_, card) in listed.items() if n not in heading(FOLDER / card)[1]]


def test_every_card_is_in_the_index() -> None:
    linked = re.findall(r"\((\S+\.md)\) \|$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert sorted(linked) == sorted(p.name for p in PAGES if p.name != "README.md")
