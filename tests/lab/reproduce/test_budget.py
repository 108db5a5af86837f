"""The table of core-hours: every experiment that trains, each run counted once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sampa.lab.reproduce.budget import (
    ORDER,
    core_hours_block,
    recorded,
    recorded_hours,
    recorded_part,
    shares,
)
from sampa.lab.reproduce.catalog import EXPERIMENTS
from sampa.lab.reproduce.readme import CORE_HOURS, REPRODUCTION, with_block
from sampa.lab.reproduce.records import write_outcome

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "results"


def test_the_page_has_the_table_of_the_present_plans_and_records() -> None:
    page = (ROOT / REPRODUCTION).read_text(encoding="utf-8")
    lines = core_hours_block(RESULTS)
    assert with_block(page, CORE_HOURS, lines, REPRODUCTION.name) == page, "run make readme"


def test_every_experiment_that_trains_has_a_place() -> None:
    assert sorted(ORDER) == sorted(name for name, e in EXPERIMENTS.items() if e.runs("cpu"))


def test_runs_that_are_shared_count_once() -> None:
    found = {share.experiment.id: share for share in shares()}
    assert found["accuracy-over-time"].new == 0
    assert found["full-cifar10"].new == found["full-cifar10"].runs == 20
    assert found["tab-cifar10"].new == 50 - 5 * 4  # five seeds of four methods are in tab-noise
    whole = sum(share.hours for share in found.values())
    assert whole < sum(experiment.core_hours() for experiment in EXPERIMENTS.values())


def test_runs_of_own_trainers_count_though_others_have_equal_ones() -> None:
    found = {share.experiment.id: share for share in shares()}
    peers = found["peers"]
    assert (peers.runs, peers.new) == (20, 10)  # ours are in tab-noise, others' are not
    assert 0 < peers.hours < peers.experiment.core_hours()
    gap = found["fig-gradient-gap"]
    assert gap.new == gap.runs == 3
    assert gap.hours > 0


def test_a_record_of_another_edition_is_told(tmp_path: Path) -> None:
    assert recorded(EXPERIMENTS["fig-toy"], RESULTS) == "yes"
    assert recorded(EXPERIMENTS["tab-imagenet"], RESULTS) == "no"
    assert recorded(EXPERIMENTS["tab-noise"], _of_another_edition(tmp_path)) == "another edition"
    assert recorded_hours(EXPERIMENTS["tab-imagenet"], RESULTS) is None


def test_a_record_that_lacks_runs_says_so(tmp_path: Path) -> None:
    share = next(share for share in shares() if share.experiment.id == "tab-cifar10")
    folder = tmp_path / "reproduce" / "tab-cifar10"
    assert share.experiment.planner is not None
    heading = share.experiment.planner("cpu", {}).heading
    write_outcome(replace(share.experiment.blank("cpu"), about=heading), folder, plots=False)
    for made, told in ((0, "0 of 50 runs"), (15, "15 of 50 runs"), (50, "yes")):
        (folder / "runs.jsonl").write_text("{}\n" * made)
        assert recorded_part(share, tmp_path) == told


def _of_another_edition(folder: Path) -> Path:
    """Results with a record whose heading is not that of the present plan."""
    outcome = replace(EXPERIMENTS["tab-noise"].blank("cpu"), about="other images")
    write_outcome(outcome, folder / "reproduce" / "tab-noise", plots=False)
    return folder
