"""`sampa bench` for real: two processes, a few steps, the file and the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from sampa.lab.bench.contenders import contenders
from sampa.lab.bench.workloads import Bench, Workload
from sampa.lab.cli import main
from sampa.lab.models.layers import count_parameters

pytestmark = [pytest.mark.dist, pytest.mark.slow]  # forty seconds


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("bench")
    as_json, html = folder / "bench.json", folder / "bench.html"
    arguments = ["--model", "mlp", "--batch-size", "4", "--rounds", "3", "--advise"]
    arguments += ["--all-methods", "--memory"]
    written = ["--json", str(as_json), "--html", str(html)]
    assert main(["bench", *arguments, *written]) == 0
    return as_json, html


def test_the_file_says_what_was_promised(files: tuple[Path, Path]) -> None:
    result = json.loads(files[0].read_text())
    for name in ("sam/sampa", "sampa/sgd", "ddp_sam/sampa", "sampa/limit"):
        r = result["ratios"][name]
        assert 0 < r["low"] <= r["median"] <= r["high"]
    assert set(result["milliseconds"]) == set(contenders())
    assert {"sgd", "sam", "sampa", "ddp_sam"} == set(result["peak_memory"])
    assert min(result["peak_memory"].values()) > 50e6
    assert result["conditions"]["machine"]["device"] == "cpu"
    assert {"commit", "versions", "machine", "problem", "threads"} <= set(result["conditions"])


def test_counts_are_means_where_steps_differ(files: tuple[Path, Path]) -> None:
    """LookSAM perturbs in one of five steps."""
    assert json.loads(files[0].read_text())["counts"]["looksam"]["rounds"] == 1.2


def test_counts_are_exact(files: tuple[Path, Path]) -> None:
    """SAMPa: one round of two gradients, one of which is sent, with a header of 16 bytes."""
    counts = json.loads(files[0].read_text())["counts"]
    gradient = 4 * count_parameters(Bench(Workload("mlp", 4), torch.device("cpu"), 0, 1).model())
    sampa = {"rounds": 1, "probes": 2, "gradient_bytes": gradient, "header_bytes": 16}
    assert counts["sampa"] == sampa
    assert counts["sam"] == {"rounds": 2, "probes": 2, "gradient_bytes": 0, "header_bytes": 0}
    assert counts["ddp_sam"] | {"header_bytes": 0} == {
        "rounds": 2,
        "probes": 2,
        "gradient_bytes": 2 * gradient,
        "header_bytes": 0,
    }


def test_the_page_has_the_chart_and_the_tables(files: tuple[Path, Path]) -> None:
    html = files[1].read_text()
    assert html.count("<table") == 3
    assert "<svg" in html
    assert "use SAM" in html or "use data-parallel SAM" in html
