"""Flatness in a report: found below its folders, shown beside the runs, or left out."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from sampa.lab.flatness.saved import write_found
from sampa.lab.flatness.settings import FLATNESS_FILE
from sampa.lab.report import make_report
from sampa.lab.report.collect import collect
from sampa.lab.report.flatness import flatness_finding
from tests.lab.flatness.sweeps import found
from tests.lab.oddities import KINDS, odd_file
from tests.lab.report.folders import a_run, write_grid, write_run


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = write_grid(tmp_path_factory.mktemp("report") / "runs")
    write_found(found(), root / "flatness" / FLATNESS_FILE)
    (root / "flatness" / "notes.md").write_text("In words: <i>flat</i>.\n")
    return make_report([root]).html


def test_landscapes_of_the_methods_stand_side_by_side_on_one_scale(page: str) -> None:
    section = page[page.index('<h2 id="flatness-1">') :]
    planes = section[section.index("Loss on a random plane") : section.index("through three")]
    assert re.findall(r"<h4>(.*?)</h4>", planes) == ["sgd", "sam", "&lt;b&gt;"]
    assert planes.count('<svg class="heat"') == 3
    assert planes.count('<svg class="heat-scale"') == 1
    assert "In words: &lt;i&gt;flat&lt;/i&gt;." in section
    for word in ("Loss barriers", "Spectral density", "Does it go with test accuracy?"):
        assert word in section


def test_one_script_runs_and_its_hash_is_in_the_policy(page: str) -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert "svg.heat" in script
    assert "://" not in page


def test_the_sentence_tells_the_flattest_and_whether_it_goes_with_accuracy() -> None:
    text = flatness_finding(found(), "toy")
    assert text.startswith("Lowest mean worst-case sharpness: sam, 1.2. Over 9 models its rank")
    assert "is −1.00" in text
    assert text.endswith("lower goes with better accuracy.")
    assert flatness_finding(found(seeds=1), "toy") == "Lowest mean worst-case sharpness: sam, 1."
    planes = replace(found(), values={"plane": found().values["plane"]})
    assert flatness_finding(planes, "toy") == "Landscapes of sgd, sam, <b>."


def test_a_sweep_is_shown_once_and_without_runs_too(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_found(found(), tmp_path / name / FLATNESS_FILE)
    assert len(collect([tmp_path]).flatness) == 1
    page = make_report([tmp_path]).html
    assert "<h1>Flatness of 9 models</h1>" in page
    assert page.count("<h2 id=") == 2  # the summary, and the sweep


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_cannot_be_read_is_left_out_with_the_reason(kind: str, tmp_path: Path) -> None:
    write_run(tmp_path / "good", a_run())
    odd_file(tmp_path / FLATNESS_FILE, kind)
    (left_out,) = collect([tmp_path]).left_out
    assert "a file is not readable: it must" in left_out.reason


def test_a_file_that_no_command_wrote_is_left_out_with_the_reason(tmp_path: Path) -> None:
    write_run(tmp_path / "good", a_run())
    saved = found().as_json()
    saved["values"]["sharpness"]["toy sam seed 0"] = ["<b>"]
    (tmp_path / FLATNESS_FILE).write_text(json.dumps(saved))
    (left_out,) = collect([tmp_path]).left_out
    assert "must have values.sharpness['toy sam seed 0'] as lists" in left_out.reason
