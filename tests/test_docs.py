"""The documentation site: its pages, its links, and the check of what was built."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import sampa
from tests.test_examples import COMING_FROM, HOW_TO, ROOT, SCRIPTS, START, TUTORIAL
from tools.site import pages
from tools.site.check import PUBLIC, faults

DOCS = ROOT / "docs"
NAV = re.findall(r"^ +- (?:.+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)


# ---- pages -----------------------------------------------------------------------------------


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(NAV) == sorted(p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md"))


def test_every_public_name_is_in_the_reference_once() -> None:
    text = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    assert sorted(re.findall(r"^::: (\S+)$", text, re.MULTILINE)) == sorted(PUBLIC)


@pytest.mark.parametrize("module", sorted(set(sampa._MODULES.values())))
def test_examples_in_docstrings_say_what_happens(module: str) -> None:
    import torch

    results = doctest.testmod(importlib.import_module(module), extraglobs={"torch": torch})
    assert results.failed == 0


def test_all_python_on_the_site_is_run_by_a_test() -> None:
    cards = (DOCS / "methods").glob("*.md")
    others = [TUTORIAL, "docs/tutorial.md", COMING_FROM, *SCRIPTS]
    run = {*HOW_TO, *cards, *map(ROOT.joinpath, others)}
    with_code = {page for page in DOCS.rglob("*.md") if "```python" in page.read_text()}
    assert with_code <= run
    assert START.page == "docs/how-to/index.md"


@pytest.mark.parametrize("folder", ["docs", "results"])
def test_every_picture_can_be_read(folder: str) -> None:
    """A browser shows nothing of an SVG with a mistake in it."""
    drawn = list((ROOT / folder).rglob("*.svg"))
    assert drawn
    for file in drawn:
        ElementTree.parse(file)


# ---- links out of docs -----------------------------------------------------------------------


def test_a_linked_file_of_the_repository_becomes_a_page() -> None:
    text = "[loop](../src/sampa/method.py), [page](maths.md#symbols), `[x](../none.md)`"
    assert pages.with_site_links(text, "training.md") == (
        "[loop](repository/src/sampa/method.py.md), [page](maths.md#symbols), `[x](../none.md)`"
    )
    back = pages.with_site_links("[maths](docs/maths.md)", "repository/CONTRIBUTING.md")
    assert back == "[maths](../maths.md)"


@pytest.mark.parametrize("link", ["../none.md", "../../outside.md"])
def test_a_link_to_nothing_is_refused(link: str) -> None:
    with pytest.raises(pages.DeadLink, match=r"^docs/gpu.md: .* must be in the repository$"):
        pages.linked_files(f"[here]({link})", DOCS / "gpu.md")


def test_what_linked_pages_link_to_comes_along() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in pages.outside_files([DOCS / "index.md"])}
    assert {"CONTRIBUTING.md", "CHANGELOG.md", "examples/own_method.py"} <= found
    assert all(pages.file_of(pages.uri_of(ROOT / name)) == ROOT / name for name in found)


def test_a_folder_becomes_a_list_of_its_pages() -> None:
    (listed,) = pages.linked_files("[all](../results/reproduce)", DOCS / "reproduction.md")
    assert pages.uri_of(listed) == "repository/results/reproduce/index.md"
    assert pages.file_of(pages.uri_of(listed)) == listed
    assert "](tab-noise/README.md)" in pages.as_page(listed)


# ---- what was built --------------------------------------------------------------------------


def site(folder: Path, body: str) -> list[str]:
    """The faults of a site of two pages; the second one has every public name."""
    names = "".join(f'<h2 id="{name}"></h2>' for name in PUBLIC)
    (folder / "index.html").write_text(f"<html><body>{body}</body></html>")
    (folder / "api.html").write_text(f"<html><body>{names}</body></html>")
    return faults(folder)


def test_a_sound_site_has_no_faults(tmp_path: Path) -> None:
    body = '<a href="api.html#sampa.SAM">SAM</a><a href="https://arxiv.org">paper</a>'
    assert site(tmp_path, body) == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="gone.html">x</a>', "no such file"),
        ('<a href="api.html#sampa.SAMM">x</a>', "no such anchor"),
        ('<script src="https://cdn.example/x.js"></script>', "loaded from the network"),
        ('<link rel="stylesheet" href="//fonts.example/x.css">', "loaded from the network"),
        ('<img src="none.svg">', "no such file"),
    ],
)
def test_faults_of_a_site_are_found(tmp_path: Path, body: str, fault: str) -> None:
    (found,) = site(tmp_path, body)
    assert found.startswith("index.html: ")
    assert found.endswith(fault)


def test_style_sheets_that_load_fonts_are_found(tmp_path: Path) -> None:
    (tmp_path / "x.css").write_text("@font-face { src: url(https://fonts.example/x.woff) }")
    (found,) = site(tmp_path, "")
    assert found == "x.css: https://fonts.example/x.woff: loaded from the network"


def test_a_public_name_that_is_missing_is_found(tmp_path: Path) -> None:
    site(tmp_path, "")
    (tmp_path / "api.html").write_text("<html></html>")
    assert "sampa.SAMPa: not in the API reference" in faults(tmp_path)
