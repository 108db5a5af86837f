"""Axes: all values inside, round ticks, and what cannot be drawn is nowhere."""

from __future__ import annotations

import math
import random

import pytest

from sampa.lab.results.axis import Axis, axis_of


@pytest.mark.parametrize("is_log", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_all_values_are_inside_and_ticks_are_where_they_say(seed: int, is_log: bool) -> None:
    chosen = random.Random(seed)
    size, spread = 10.0 ** chosen.uniform(-9, 9), 10.0 ** chosen.uniform(-6, 3)
    values = [size * (1 + spread * chosen.random()) for _ in range(5)]
    values = values if is_log else [v - size * chosen.random() for v in values]
    axis = axis_of(values, is_log=is_log)
    assert all(0 <= axis.place(v) <= 1 for v in values)
    ticks = axis.ticks(8)
    assert 2 <= len(ticks) <= 12
    assert len(set(ticks.values())) == len(ticks)
    places = [axis.place(tick) for tick in ticks]
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)
    for place, text in zip(places, ticks.values(), strict=True):
        assert axis.place(float(text.replace("−", "-"))) == pytest.approx(place, abs=0.01)


def test_ticks_have_the_digits_that_tell_them_apart() -> None:
    assert list(Axis(-0.1, 1.1).ticks(6).values()) == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
    assert list(Axis(-3.0, 3.0).ticks(3).values()) == ["−2", "0", "2"]
    assert list(Axis(0.0, 0.5).ticks(2).values()) == ["0.00", "0.25", "0.50"]
    assert list(Axis(0.0, 4e6).ticks(2).values()) == ["0", "2e+06", "4e+06"]


def test_whole_numbers_have_whole_ticks() -> None:
    assert list(Axis(0.9, 3.1).ticks(8, whole=True).values()) == ["1", "2", "3"]
    assert list(Axis(0.0, 20.0).ticks(8, whole=True).values()) == ["0", "5", "10", "15", "20"]


def test_a_logarithmic_axis_has_powers_or_parts_of_one() -> None:
    assert list(axis_of([1e-4, 1.0], is_log=True).ticks(8)) == [1e-4, 1e-3, 1e-2, 0.1, 1.0]
    assert list(axis_of([1.0, 10.0], is_log=True).ticks(8)) == [1.0, 2.0, 5.0, 10.0]
    assert len(axis_of([1e-60, 1e60], is_log=True).ticks(8)) <= 9


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, -math.inf], [5.0], [0.0], [-3, -3]])
@pytest.mark.parametrize("is_log", [False, True])
@pytest.mark.parametrize("floor", [False, True])
def test_any_values_have_an_axis(values: list[float], is_log: bool, floor: bool) -> None:
    if floor and is_log:
        return
    axis = axis_of(values, is_log=is_log, floor=floor)
    assert axis.low < axis.high
    assert axis.ticks(5)


def test_what_cannot_be_drawn_is_nowhere() -> None:
    axis = axis_of([1.0, 2.0, math.nan, 1e308, -1e308])
    assert (axis.low, axis.high) == pytest.approx((0.95, 2.05))
    assert all(math.isnan(axis.place(value)) for value in (math.nan, math.inf, -1e308))
    assert math.isnan(axis_of([1.0, 2.0], is_log=True).place(0.0))


def test_a_floor_is_zero_unless_a_value_is_below() -> None:
    assert axis_of([1.0, 2.0], floor=True).low == 0.0
    assert axis_of([-1.0, 2.0], floor=True).low < -1.0
