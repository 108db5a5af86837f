"""Readings: the right numbers at the right places of a drawing, for every kind of chart."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Literal

import pytest

from sampa.lab.results.charts import Chart, Line
from sampa.lab.results.drawing import page_chart
from sampa.lab.results.looks import keys

EVIL = "'><script>alert('x')</script>&amp;"
Kind = Literal["lines", "bars", "intervals", "points"]


def told(kind: Kind, *lines: Line) -> dict[str, Any]:
    svg = page_chart(Chart("c", "t", "epoch", "loss", list(lines), kind=kind))
    found = re.match(r"<svg data-readings='([^'<>&]*)' ", svg)
    assert found is not None
    return json.loads(found[1])


def test_a_column_of_lines_has_what_each_has_there() -> None:
    found = told("lines", Line("a", [1, 2], [3.0, 4.0]), Line("b", [2, 3], [math.nan, 12345.678]))
    assert found["names"] == ["a", "b"]
    assert len(set(found["colors"])) == 2
    assert [place[1:] for place in found["places"]] == [
        [None, "epoch 1", ["3", ""]],
        [None, "epoch 2", ["4", ""]],
        [None, "epoch 3", ["", "1.235e+04"]],
    ]
    first, second, third = (place[0] for place in found["places"])
    assert 0 < first < second < third < 100
    assert second - first == pytest.approx(third - second, abs=0.02)


def test_points_have_their_place() -> None:
    found = told("points", Line("a", [1.0, 3.0], [5.0, 7.0]))
    (x, y, head, values), (x_2, y_2, *_) = found["places"]
    assert (head, values, found["names"]) == ("a", ["1", "5"], ["epoch", "loss"])
    assert x < x_2
    assert y > y_2  # from above


@pytest.mark.parametrize("kind", ["bars", "intervals"])
def test_rows_have_ours_the_interval_and_the_papers(kind: Kind) -> None:
    lines = (
        Line("a", [0.0], [1.0, 2.0], [-0.5], [2.5], "g"),
        Line("b", [0.0], [3.0], [2.0], [4.0]),
    )
    found = told(kind, *lines)
    assert found["names"] == ["ours", "from", "to", "paper"]
    assert [place[2:] for place in found["places"]] == [
        ["g, a", ["1", "−0.5", "2.5", "2"]],
        ["b", ["3", "2", "4", ""]],
    ]
    (_, upper, *_), (_, lower, *_) = found["places"]
    assert 0 < upper < lower < 100


def test_markup_stays_text() -> None:
    assert told("lines", Line(EVIL, [1, 2], [3.0, 4.0]))["names"] == [EVIL]


def test_only_several_lines_that_are_not_named_elsewhere_need_keys() -> None:
    one, two = Line("a", [1], [2]), Line("b", [1], [2])
    assert [label for _, label in keys(Chart("c", "t", "x", "", [one, two]))] == ["a", "b"]
    assert not keys(Chart("c", "t", "x", "", [one]))
    assert not keys(Chart("c", "t", "x", "", [one, two], legend=False))
    assert not keys(Chart("c", "t", "x", "", [one, two], kind="bars"))
