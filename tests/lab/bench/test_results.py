"""From times to ratios and advice, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from sampa.lab.bench.page import page
from sampa.lab.bench.results import Ratio, advice, ratio, ratios, summary
from sampa.lab.bench.rounds import Counts, Measured
from sampa.lab.bench.show import sheets

SECONDS = {
    "sgd": [1.0, 1.0, 1.0, 1.0, 1.0],
    "sam": [2.0, 4.0, 2.0, 2.0, 2.0],
    "sampa": [1.0, 2.0, 1.25, 1.0, 1.6],
    "ddp_sam": [1.5, 2.0, 1.0, 1.0, 1.6],
    "ddp_sgd": [0.5, 0.5, 0.5, 0.5, 0.5],
    "limit": [1.0, 1.0, 1.0, 0.8, 1.6],
}
CONDITIONS: dict[str, Any] = {
    "commit": "<script>alert(1)</script>",
    "versions": {"torch": "2"},
    "machine": {"system": "x", "processor": "y", "cores": 2, "device": "cpu"},
    "problem": {"model": "mlp", "batch_size": 8, "base": "sgd"},
}


def result(**changed: list[float]) -> dict[str, Any]:
    counts = {"sampa": Counts(rounds=1, probes=2, gradient_bytes=40, header_bytes=8)}
    return summary(Measured(SECONDS | changed, counts), {"sam": 7_000_000}, CONDITIONS)


def test_ratios_are_paired_by_round() -> None:
    """2, 2, 1.6, 2, 1.25: the slow second round cancels out."""
    assert ratio(SECONDS, "sam", "sampa") == Ratio(median=2.0, low=1.6, high=2.0)


def test_the_file_has_the_ratios_that_were_promised() -> None:
    made = result()
    assert {"sam/sampa", "sampa/sgd", "ddp_sam/sampa", "sampa/limit"} <= set(made["ratios"])
    assert set(made["ratios"]["sam/sampa"]) == {"median", "low", "high"}
    assert made["bytes_per_rank"] == 48
    assert made["exposed_milliseconds"] == pytest.approx(200.0)
    assert made["peak_memory"] == {"sam": 7_000_000}


def test_the_fast_steps_are_those_at_the_lower_quartile() -> None:
    """Of 1, 1, 1.25, 1.6 and 2 the second; of 0.8, 1, 1, 1 and 1.6 too."""
    fast = result()["fast_milliseconds"]
    assert (fast["sampa"], fast["limit"]) == pytest.approx((1000.0, 1000.0))


def test_contenders_that_took_no_part_have_no_ratio() -> None:
    assert "mesa/sgd" not in ratios(SECONDS)


def test_advice_is_two_sentences_and_names_the_fastest() -> None:
    said = advice(result())
    assert said.count(". ") == 1
    assert "use SAMPa on two devices" in said


def test_advice_follows_the_measurement() -> None:
    slow = [9.0] * 5
    assert "use data-parallel SAM" in advice(result(sampa=slow))
    assert "use SAM on one device" in advice(result(sampa=slow, ddp_sam=slow))


def test_every_number_is_in_a_table() -> None:
    cells = {cell for sheet in sheets(result()) for row in sheet.rows for cell in row}
    assert {"2.000", "1.600 to 2.000", "48", "7"} <= cells


def test_the_page_escapes_what_it_is_given() -> None:
    html = page(result())
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
