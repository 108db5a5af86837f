"""From times to ratios and advice, against numbers worked out by hand."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from sampa.lab.bench.own_cost import OwnCost
from sampa.lab.bench.page import bench_page
from sampa.lab.bench.result import BenchResult, advice, paired_ratios, result_of
from sampa.lab.bench.rounds import Counts
from sampa.lab.bench.tables import result_tables
from sampa.lab.bench.timeline import PHASES, Span, timeline_svg
from sampa.lab.conditions import Conditions
from sampa.lab.results.fitted import Fitted
from sampa.lab.results.summary import Quartiles

SECONDS = {
    "sgd": [1.0, 1.0, 1.0, 1.0, 1.0],
    "sam": [2.0, 4.0, 2.0, 2.0, 2.0],
    "sampa": [1.0, 2.0, 1.25, 1.0, 1.6],
    "ddp_sam": [1.5, 2.0, 1.0, 1.0, 1.6],
    "ddp_sgd": [0.5, 0.5, 0.5, 0.5, 0.5],
    "limit": [1.0, 1.0, 1.0, 0.8, 1.6],
}
CONDITIONS = Conditions(
    {
        "commit": "<script>alert(1)</script>",
        "versions": {"torch": "2"},
        "machine": {"system": "x", "processor": "y", "cores": 2, "device": "cpu"},
        "problem": {"model": "mlp", "batch_size": 8, "base": "sgd"},
    }
)


OWN_COST = OwnCost("sam", 100_000, 23, 76.1, 1.65)


def result(**changed: list[float]) -> BenchResult:
    counts = {"sampa": Counts(rounds=1, probes=2, gradient_bytes=40, header_bytes=8)}
    memory = {"sam": 7_000_000}
    return result_of(SECONDS | changed, counts, memory, CONDITIONS, [OWN_COST])


def test_ratios_are_paired_by_round() -> None:
    """2, 2, 1.6, 2, 1.25: the slow second round cancels out."""
    assert paired_ratios(SECONDS)["sam/sampa"] == Quartiles(median=2.0, low=1.6, high=2.0)


def test_the_file_has_the_ratios_that_were_promised() -> None:
    made = result().as_json()
    assert {"sam/sampa", "sampa/sgd", "ddp_sam/sampa", "sampa/limit"} <= set(made["ratios"])
    assert set(made["ratios"]["sam/sampa"]) == {"median", "low", "high"}
    assert made["bytes_per_rank"] == 48
    assert made["exposed_milliseconds"] == pytest.approx(200.0)
    assert made["peak_memory"] == {"sam": 7_000_000}


def test_a_result_is_read_back_as_it_was_written() -> None:
    written = json.loads(json.dumps(result().as_json()))
    assert BenchResult.from_json(written) == result()
    del written["own_cost"]
    assert "own_cost" not in BenchResult.from_json(written).as_json()


def test_the_fast_steps_are_those_at_the_lower_quartile() -> None:
    """Of 1, 1, 1.25, 1.6 and 2 the second; of 0.8, 1, 1, 1 and 1.6 too."""
    fast = result().fast_milliseconds
    assert (fast["sampa"], fast["limit"]) == pytest.approx((1000.0, 1000.0))


def test_contenders_that_took_no_part_have_no_ratio() -> None:
    assert "mesa/sgd" not in paired_ratios(SECONDS)


def test_advice_is_two_sentences_and_names_the_fastest() -> None:
    said = advice(result())
    assert said.count(". ") == 1
    assert "use SAMPa on two devices" in said


def test_advice_follows_the_measurement() -> None:
    slow = [9.0] * 5
    assert "use data-parallel SAM" in advice(result(sampa=slow))
    assert "use SAM on one device" in advice(result(sampa=slow, ddp_sam=slow))


def test_every_number_is_in_a_table() -> None:
    cells = {cell.text for table in result_tables(result()) for row in table.rows for cell in row}
    assert {"2.000 (1.600 to 2.000)", "48", "7", "100,000", "76"} <= cells


def test_the_tables_fit_a_terminal_of_80_columns() -> None:
    """With the longest name of a contender, none of it cut off."""
    file, longest = io.StringIO(), "pytorch_optimizer_sam"
    for table in result_tables(result(**{longest: [1.2345] * 5})):
        Console(file=file, width=80).print(Fitted(table))
    assert "…" not in file.getvalue()
    assert file.getvalue().count(longest) == 2


def test_the_page_escapes_what_it_is_given() -> None:
    html = bench_page(result())
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_the_time_line_names_every_phase_with_its_length_on_each_rank() -> None:
    ranks = [[Span(phase, n + r, n + r + 0.5) for n, phase in enumerate(PHASES)] for r in (0, 1)]
    svg = timeline_svg(ranks, "One step of <SAMPa>")
    assert "<svg" in svg
    assert "One step of &lt;SAMPa&gt;" in svg
    for label, _ in PHASES.values():
        assert f"{label}: 0.50 and 0.50 ms" in svg
    assert "rank 1" in svg
