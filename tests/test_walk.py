"""How far a reader has to walk to follow one step."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sampa
from tests.ranks import run_ranks

PACKAGE = str(Path(sampa.__file__).parent) + "/"
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"


def visited() -> set[str]:
    """The files of the library in which a step of SAMPa calls something."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    executor = sampa.distribute(model)
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = sampa.SAMPa(base, executor=executor)

    def loss_fn(batch: Tensor) -> Tensor:
        return executor.model(batch).square().mean()

    files: set[str] = set()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            files.add(frame.f_code.co_filename.removeprefix(PACKAGE))

    batches = torch.randn(4, 16, 4, generator=torch.Generator().manual_seed(0))
    for batch in batches[:3]:
        optimizer.step(loss_fn, batch)
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        optimizer.step(loss_fn, batches[3])
    finally:
        sys.setprofile(before)
    return files


def documented(heading: str) -> set[str]:
    """The files in the first table of docs/architecture.md below some words."""
    below = PAGE.read_text(encoding="utf-8").split(heading, 1)[1]
    table = re.search(r"(?:^\|.*\n)+", below, flags=re.MULTILINE)
    assert table is not None
    return set(re.findall(r"^\| `([\w/.]+)`", table.group(), flags=re.MULTILINE))


def test_a_step_in_one_process_visits_the_files_that_the_page_lists_and_at_most_15() -> None:
    files = visited()
    assert files == documented("### The walk of one step")
    assert len(files) <= 15


def test_a_step_on_two_ranks_visits_the_files_that_the_page_lists_and_at_most_18() -> None:
    ranks = run_ranks(2, visited)
    shared = documented("### The walk of one step") - {"execution/serial.py"}
    assert set.union(*ranks) == shared | documented("in place of `execution/serial.py`")
    assert all(len(files) <= 18 for files in ranks)


@pytest.mark.parametrize(
    ("folder", "indent"), [("", 2), ("execution", 4), ("execution/parallel", 6)]
)
def test_the_tree_lists_every_file_of_the_library(folder: str, indent: int) -> None:
    tree = PAGE.read_text(encoding="utf-8").split("src/sampa/\n", 1)[1].split("  lab/\n", 1)[0]
    listed = set(re.findall(rf"^ {{{indent}}}(\w+\.py)", tree, flags=re.MULTILINE))
    files = {path.name for path in (Path(PACKAGE) / folder).glob("*.py")}
    assert listed | {"__init__.py", "__main__.py"} == files | {"__init__.py", "__main__.py"}


def test_the_tree_lists_every_integration() -> None:
    tree = PAGE.read_text(encoding="utf-8").split("  integrations/", 1)[1].split("  lab/\n", 1)[0]
    files = {path.name for path in (Path(PACKAGE) / "integrations").glob("*.py")}
    assert {*re.findall(r"\w+\.py", tree), "__init__.py"} == files
