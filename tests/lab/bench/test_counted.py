"""What `sampa bench --count` writes can be read again, and its tables show it."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sampa.execution.parallel.agreement import BatchMark
from sampa.lab.bench.counted import (
    COMPARED,
    IMAGE,
    Counted,
    comparison_table,
    mark_seconds,
)
from sampa.lab.commands.arguments import BenchArguments
from sampa.lab.commands.bench import main
from tools.performance_tables import BEFORE, COUNTS


@pytest.fixture(scope="module")
def record() -> Counted:
    return Counted.from_json(json.loads(COUNTS.read_text()))


@pytest.mark.slow
def test_the_command_writes_what_the_page_is_made_of(tmp_path: Path, record: Counted) -> None:
    file = tmp_path / "counts.json"
    assert main(BenchArguments(model="resnet56", count=True, json=file)) == 0
    found = Counted.from_json(json.loads(file.read_text()))
    assert (found.steps, found.norm, found.product) == (record.steps, record.norm, record.product)


def test_a_record_reads_back_as_it_was_written(record: Counted) -> None:
    assert Counted.from_json(json.loads(json.dumps(record.as_json()))) == record


def test_every_row_has_what_was_found(record: Counted) -> None:
    before = json.loads(BEFORE.read_text())["found"]
    shown = comparison_table(before, replace(record, mark={"64": 0.5, "256": 0.25}))
    assert [r[0].text for r in shown.rows] == list(COMPARED.values())
    assert "0.50 / 0.25" in [r[2].text for r in shown.rows]
    assert before.keys() <= COMPARED.keys()


def test_a_batch_is_marked_in_less_time_than_its_bytes_take() -> None:
    """38 MB take a processor tens of milliseconds: they are hashed in another thread."""
    batch = torch.zeros(64, *IMAGE)
    start = time.perf_counter()
    BatchMark(batch).value(batch)
    whole = time.perf_counter() - start
    assert mark_seconds(64, turns=3) < whole / 3
