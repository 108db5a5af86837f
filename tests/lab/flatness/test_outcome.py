"""What is made of a sweep's numbers: intervals, rank correlations, pictures."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from matplotlib.colors import to_hex
from scipy.stats import kendalltau

from sampa.flatness import Density
from sampa.lab.flatness.kinds import MEASURES
from sampa.lab.flatness.measures import MEASURED_BY
from sampa.lab.flatness.outcome import barrier_table, flatness_table, percent_table
from sampa.lab.flatness.page import flatness_page, write_flatness_record
from sampa.lab.flatness.pictures import widened
from sampa.lab.flatness.ranks import correlation, correlation_table
from sampa.lab.flatness.saved import read_found, write_found
from sampa.lab.flatness.settings import FLATNESS_FILE
from sampa.lab.results.heat_map import SHADES, ColorScale, HeatMap, heat_map
from sampa.lab.results.summary import summarize
from tests.lab.flatness.sweeps import found


def test_intervals_are_over_seeds_or_over_the_batches_of_a_single_one() -> None:
    table = flatness_table(found(), "toy")
    summary = summarize([3.0, 3.2, 3.4])
    assert table.rows[1][1].text == f"{summary.mean:.3g} ± {summary.margin:.2g}"
    single = flatness_table(found(seeds=1), "toy")
    assert single.rows[1][1].text == "3 ± 0"
    assert "over batches" in single.notes[0]


def test_differences_are_paired_and_in_percent_of_the_first() -> None:
    table = percent_table(found(), "toy")
    assert table is not None
    assert table.rows[1][1].text == "-62.5 ± 0.0\u00a0%"  # of 3.2
    assert not table.rows[1][1].unsure


@pytest.mark.parametrize("seed", range(3))
def test_rank_correlations_are_those_of_scipy(seed: int) -> None:
    random = np.random.default_rng(seed)
    a, b = random.normal(size=9), random.normal(size=9)
    ours = correlation(a.tolist(), b.tolist())
    theirs: Any = kendalltau(a, b, method="exact")
    assert ours.tau == pytest.approx(theirs.statistic)
    assert ours.p == pytest.approx(theirs.pvalue, abs=0.015)  # 20,000 random orders


def test_values_that_are_not_numbers_have_no_rank() -> None:
    ranks = correlation([1.0, math.nan, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0, 5.0])
    assert math.isnan(ranks.tau)
    assert correlation([1.0, 2.0, math.inf, math.inf], [1.0, 2.0, 3.0, 4.0]).tau == 5 / 6


def test_what_a_report_has_without_torch_and_matplotlib_is_theirs() -> None:
    """Kinds of measures, the density between its nodes, the colors of maps."""
    assert MEASURED_BY.keys() == MEASURES.keys()
    nodes, weights, at = np.random.default_rng(0).normal(size=(3, 2, 4))
    density = Density(torch.tensor(nodes), torch.tensor(weights), 0.0)
    theirs = density.at(torch.tensor(at[0]), 0.3).numpy()
    ours = widened(nodes.tolist(), weights.tolist(), at[0], 0.3)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert [to_hex(c) for c in colormaps["viridis"](np.linspace(0, 1, 64))] == list(SHADES)


def test_the_verdict_says_which_way_it_goes() -> None:
    table = correlation_table(found())
    assert table is not None
    assert table.rows[0][1].value == pytest.approx(-1)
    assert "n = 9" in table.rows[0][1].text
    assert table.rows[0][2].text == "lower goes with better accuracy"
    up = list(range(8))
    assert correlation(up, up).verdict == "higher goes with better accuracy"
    assert correlation(up[:3], up[:3]).verdict == "too few models"
    assert correlation([0, 1, 2, 3, 4], [1, 0, 2, 4, 3]).verdict == "not significant"


def test_maps_have_one_scale_and_tell_their_numbers() -> None:
    low, high = (
        HeatMap(name, [-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0], [[v] * 3] * 3)
        for name, v in (("low", 1.0), ("high", 100.0))
    )
    scale = ColorScale.of([low, high])
    assert (scale.low, scale.high) == (1.0, 100.0)
    assert scale.share(10.0) == pytest.approx(0.5)
    assert scale.share(float("nan")) == 1.0
    drawn = heat_map(low, scale)
    assert drawn.count("<rect") == 9
    assert "<title>−1.00, 0.00: 1</title>" in drawn
    assert scale.color(1.0) != scale.color(100.0)


def test_contours_are_where_the_values_are() -> None:
    """Of exp(x): contours are vertical lines at the levels' logarithms."""
    axis = [float(x) for x in range(11)]
    steep = HeatMap("steep", axis, axis, [[float(np.exp(x))] * 11 for x in axis])
    drawn = heat_map(steep, ColorScale.of([steep]))
    path = re.search(r'class="contour" fill="none" d="([^"]+)"', drawn)
    assert path is not None
    places = {float(x) for x in re.findall(r"[ML]([\d.]+),", path[1])}
    assert places == {10.0 * (i + 0.5) for i in range(1, 10)}


def test_the_page_needs_nothing_else_and_escapes_names() -> None:
    text = flatness_page(found())
    assert "://" not in text
    assert "<b>" not in text
    assert "&lt;b&gt;" in text
    assert re.search(r"script-src 'sha256-[\w+/]+=*'", text)


def test_a_record_has_numbers_words_and_pictures(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("What was found, in words.\n")
    write_flatness_record(found(), tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "What was found, in words." in text
    for name in re.findall(r"\]\(([^)]+)\)", text):
        assert (tmp_path / name).is_file()
    drawn = {file.name: ElementTree.parse(file) for file in tmp_path.glob("*.svg")}
    for name in ("plane-toy.svg", "triangle-toy.svg"):
        around, *maps, scale = drawn[name].iter("{http://www.w3.org/2000/svg}svg")
        assert maps
        assert float(around.attrib["viewBox"].split()[2]) > float(scale.attrib["width"])
    assert json.loads((tmp_path / FLATNESS_FILE).read_text())["settings"]["rho"] == 0.1
    assert len(re.findall(r"Cost: 5 gradients over these samples", text)) == 6  # of each picture


def test_names_of_pictures_fit_every_file_system(tmp_path: Path) -> None:
    write_found(found(), tmp_path / FLATNESS_FILE)
    text = (tmp_path / FLATNESS_FILE).read_text()
    (tmp_path / FLATNESS_FILE).write_text(text.replace('"toy', '"tab-noise: 40 %'))
    write_flatness_record(read_found(tmp_path / FLATNESS_FILE), tmp_path)
    drawn = {file.name for file in tmp_path.glob("*.svg")}
    assert "plane-tab-noise-40.svg" in drawn
    assert all(re.fullmatch(r"[a-z0-9.+-]+", name) for name in drawn)


def test_barriers_are_those_of_the_line_between_its_ends() -> None:
    table = barrier_table(found(), "toy")
    assert table is not None
    ((name, *numbers),) = table.rows
    assert name.text == "sgd → sam"
    assert [cell.value for cell in numbers] == [3.0, 4.0, 1.0, 2.0]  # what is beyond does not count


def test_marks_are_drawn_where_they_are() -> None:
    axis = [0.0, 1.0, 2.0]
    shown = HeatMap("", axis, axis, [[1.0] * 3] * 3, {"a": (0.0, 0.0), "b": (1.5, 2.0)})
    drawn = heat_map(shown, ColorScale.of([shown]))
    assert "M2.0,25.0h6M5.0,22.0v6" in drawn  # the middle of the lower left cell
    assert "M17.0,5.0h6M20.0,2.0v6" in drawn
    assert re.findall(r">(\w)</text>", drawn) == ["a", "b"]


# ---- the file that a report finds ------------------------------------------------------------


def test_what_was_found_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_found(found(), tmp_path / FLATNESS_FILE)
    assert read_found(tmp_path / FLATNESS_FILE) == found()


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (("subjects", 0), {"name": 1}, r"subjects\[0\] must have a field .recipe"),
        (("settings", "rho"), "x", "settings.rho must be a finite number"),
        (("values", "flat"), {}, "values.flat as of a measure that this version has"),
        (("values", "sharpness", "toy sam seed 0"), [], "as lists of finite numbers"),
        (("values", "plane", "toy sam seed 0", "loss"), [[1.0]], "as lists of finite numbers"),
        (("values", "line", "toy sam seed 0", "x"), [0.0], "as lists of finite numbers"),
        (("values", "density", "toy sam seed 0"), {"nodes": [[1]]}, "as lists of finite numbers"),
        (("gradients",), {}, "gradients as the cost of each measure"),
        (("command",), None, "command must be text"),
    ],
)
def test_a_file_that_is_not_ours_is_refused(
    where: tuple[Any, ...], value: Any, message: str, tmp_path: Path
) -> None:
    saved: Any = json.loads(json.dumps(found().as_json()))
    inner = saved
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    (tmp_path / FLATNESS_FILE).write_text(json.dumps(saved))
    with pytest.raises(ValueError, match=message):
        read_found(tmp_path / FLATNESS_FILE)
