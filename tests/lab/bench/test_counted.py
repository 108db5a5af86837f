"""What `sampa bench --count` writes can be read again, and its tables show it."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from sampa.execution.parallel.agreement import BatchMark
from sampa.lab.bench import counted
from sampa.lab.bench.counted import (
    COMPARED,
    IMAGE,
    Counted,
    batch_seconds,
    comparison_table,
)
from sampa.lab.bench.counting import count_reduction, count_step
from sampa.lab.bench.workloads import Bench, Workload
from sampa.lab.commands.arguments import BenchArguments
from sampa.lab.commands.bench import main
from sampa.vectors.reductions import global_norms, inner_product
from tools.performance_tables import BEFORE, COUNTS


@pytest.fixture(scope="module")
def record() -> Counted:
    return Counted.from_json(json.loads(COUNTS.read_text()))


@pytest.mark.slow
def test_the_command_writes_what_the_page_is_made_of(
    tmp_path: Path, record: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted, "STARTS", 1)
    monkeypatch.setattr(counted, "DRAWN_NUMBERS", 1_000_000)
    monkeypatch.setattr(counted, "batch_seconds", partial(batch_seconds, turns=3))
    file = tmp_path / "counts.json"
    assert main(BenchArguments(model="mlp", count=True, json=file)) == 0
    found = Counted.from_json(json.loads(file.read_text()))
    assert [(s.method, s.base, s.checks, s.waits, s.strided) for s in found.steps] == [
        (s.method, s.base, s.checks, s.waits, s.strided) for s in record.steps
    ]
    assert found.receive.keys() == found.mark.keys() == record.mark.keys()


@pytest.mark.slow
def test_the_record_is_what_a_step_costs_now(record: Counted) -> None:
    bench = Bench(Workload(record.model, 8), torch.device("cpu"), 0, 1)
    shapes = [tuple(p.shape) for p in bench.model().parameters()]
    for method in ("sam", "sampa"):
        assert count_step(method, shapes) == record.step(method, "sgd")
    assert count_step("sampa", shapes, "adamw", checks="late") == record.step(
        "sampa", "adamw", "late"
    )
    norm = count_reduction(lambda ts: global_norms([ts])[0], shapes).launches
    product = count_reduction(lambda ts: inner_product([*zip(ts, ts, strict=True)]), shapes)
    assert (norm, product.launches) == (record.norm, record.product)


def test_a_record_reads_back_as_it_was_written(record: Counted) -> None:
    assert Counted.from_json(json.loads(json.dumps(record.as_json()))) == record


def test_every_row_has_what_was_found(record: Counted) -> None:
    before = json.loads(BEFORE.read_text())["found"]
    times = {"mark": {"64": 0.5, "256": 0.25}, "receive": {"64": 0.1, "256": 0.2}}
    shown = comparison_table(before, replace(record, **times))
    assert [r[0].text for r in shown.rows] == list(COMPARED.values())
    assert {"0.50 / 0.25", "0.10 / 0.20"} <= {r[2].text for r in shown.rows}
    assert before.keys() <= COMPARED.keys()


def test_a_batch_is_marked_in_less_time_than_its_bytes_take() -> None:
    """38 MB take a processor tens of milliseconds: they are hashed in another thread."""
    batch = torch.zeros(64, *IMAGE)
    start = time.perf_counter()
    BatchMark([batch]).value(batch)
    whole = time.perf_counter() - start
    assert sum(batch_seconds(64, turns=3)) < whole / 3
