"""Means, deviations and intervals, against numbers computed by hand and scipy's own tests."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sampa.lab.results.summary import holm, paired, plus_minus, summarize


def test_the_deviation_is_that_of_a_sample() -> None:
    found = summarize([2.0, 4.0, 4.0, 6.0])
    assert (found.n, found.mean) == (4, 4.0)
    assert found.std == pytest.approx(math.sqrt(8 / 3))  # (4 + 0 + 0 + 4) / (4 - 1)


def test_a_single_number_has_neither_deviation_nor_interval() -> None:
    found = summarize([3.0])
    assert math.isnan(found.std)
    assert math.isnan(found.margin)
    assert str(found) == "3.00"
    unknown = dict.fromkeys(("std", "standard_error", "margin"))
    assert found.as_json() == {"n": 1, "mean": 3.0, **unknown}


def test_a_summary_is_written_as_mean_and_deviation() -> None:
    assert str(summarize([90.0, 94.0])) == "92.00 ± 2.83"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((1.0, None), "1.00"),
        ((-1.0, math.nan, 3), "-1.000"),
        ((1.0, 0.25, 1), "1.0 ± 0.2"),
    ],
)
def test_an_error_is_shown_where_it_is_known(arguments: tuple[float, ...], text: str) -> None:
    assert plus_minus(*arguments) == text  # pyright: ignore[reportArgumentType]


def test_a_difference_has_its_sign() -> None:
    assert plus_minus(1.0, 0.5, signed=True) == "+1.00 ± 0.50"


values = st.lists(st.floats(-100, 100), min_size=2, max_size=8).filter(
    lambda v: len({round(x, 3) for x in v}) > 1
)


@given(values)
def test_the_interval_is_students(numbers: list[float]) -> None:
    found = summarize(numbers)
    low, high = stats.t.interval(0.95, len(numbers) - 1, loc=found.mean, scale=stats.sem(numbers))
    assert found.mean - found.margin == pytest.approx(low, rel=1e-9, abs=1e-9)
    assert found.mean + found.margin == pytest.approx(high, rel=1e-9, abs=1e-9)


@given(values)
def test_a_mean_counts_where_the_t_test_finds_it(numbers: list[float]) -> None:
    test: Any = stats.ttest_1samp(numbers, 0.0)
    p = test.pvalue
    assert summarize(numbers).is_sure == (p <= 0.05) or p == pytest.approx(0.05)
    assert summarize(numbers).p_value == pytest.approx(p, rel=1e-6, abs=1e-12)


def test_a_family_of_tests_is_corrected_by_holms_method() -> None:
    # By hand: 4 · 0.01, 3 · 0.015, 2 · 0.03, and 1 · 0.04, which may not be smaller than that.
    assert holm([0.03, 0.01, 0.04, 0.015]) == pytest.approx([0.06, 0.04, 0.06, 0.045])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.04]) == [0.04]
    assert holm([]) == []


def test_what_tells_nothing_has_a_p_value_of_one() -> None:
    assert summarize([3.0]).p_value == 1.0
    assert summarize([1.0, -1.0]).p_value == 1.0
    assert summarize([2.0, 2.0]).p_value == 0.0


@pytest.mark.parametrize(
    ("numbers", "is_sure"),
    [
        ([1.0], False),  # one seed
        ([1.0, 1.0], True),
        ([0.0, 0.0], False),  # no error, but nothing to be sure of
        ([1.0, 3.0], False),  # two standard errors: p = 0.30 with two seeds
        ([1.0, 2.0, 3.0], False),  # 3.5 standard errors: p = 0.07 with three
        ([1.5, 2.0, 2.5], True),
    ],
)
def test_few_seeds_need_a_large_difference(numbers: list[float], is_sure: bool) -> None:
    assert summarize(numbers).is_sure is is_sure


def test_a_difference_is_paired_by_seed() -> None:
    ours, theirs = {0: 93.0, 1: 95.0, 2: 97.0, 3: 91.0}, {0: 90.0, 1: 94.0, 3: 90.0, 7: 0.0}
    found = paired(ours, theirs)
    assert found is not None
    assert (found.n, found.mean) == (3, pytest.approx(5 / 3))  # 3, 1 and 1
    a, b = ([values[seed] for seed in (0, 1, 3)] for values in (ours, theirs))
    interval = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert found.margin == pytest.approx((interval.high - interval.low) / 2)


def test_without_a_common_seed_there_is_no_difference() -> None:
    assert paired({0: 1.0}, {1: 1.0}) is None
