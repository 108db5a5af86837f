"""Every experiment at the scale for tests: real runs on embedded digits, in seconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sampa.lab.reproduce.runner as runner
from sampa.lab.cli import main
from sampa.lab.reproduce import gap, theory, toy
from sampa.lab.reproduce.catalog import EXPERIMENTS
from sampa.lab.reproduce.records import outcome_page, write_outcome
from sampa.lab.reproduce.request import Request
from sampa.lab.results.outcome import Outcome
from sampa.lab.results.paper import published
from sampa.lab.training.folder import RunFolder
from tests.marks import rest_is_slow


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all, so that tunings and measurements are shared as they are for users."""
    return tmp_path_factory.mktemp("reproduce")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


QUICK = ("theory", "tab-cifar10", "tab-glue", "fig-gradient-gap", "tab-two-devices")


@pytest.mark.parametrize("name", rest_is_slow(EXPERIMENTS, *QUICK))
def test_every_experiment_runs_in_seconds_on_embedded_digits(name: str, out: Path) -> None:
    outcome = EXPERIMENTS[name].outcome(Request("smoke", out, seeds=1))
    assert outcome.entries
    assert all(entry.values for entry in outcome.entries)
    assert f"# {name}: " in outcome_page(outcome)


FIGURES = [name for name in EXPERIMENTS if name.startswith("fig-")]


@pytest.mark.parametrize("name", rest_is_slow(FIGURES, "fig-gradient-gap"))
def test_every_figure_of_the_paper_has_a_picture(name: str, out: Path, tmp_path: Path) -> None:
    outcome = EXPERIMENTS[name].outcome(Request("smoke", out, seeds=1))
    assert outcome.charts
    write_outcome(outcome, tmp_path, plots=True)
    for chart in outcome.charts:
        assert (tmp_path / f"{chart.name}.svg").read_text(encoding="utf-8").count("<svg") == 1
        assert (tmp_path / f"{chart.name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_second_call_runs_nothing(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request("smoke", tmp_path, seeds=1)
    first = EXPERIMENTS["tab-penalty"].outcome(request)
    monkeypatch.setattr(
        "sampa.lab.training.loop.Trainer.fit", lambda self: pytest.fail("it trained")
    )
    assert EXPERIMENTS["tab-penalty"].outcome(request) == first


def test_more_seeds_add_to_what_is_there(tmp_path: Path) -> None:
    one = EXPERIMENTS["tab-imagenet"].outcome(Request("smoke", tmp_path, seeds=1))
    two = EXPERIMENTS["tab-imagenet"].outcome(Request("smoke", tmp_path, seeds=2))
    for before, after in zip(one.entries, two.entries, strict=True):
        assert after.values.keys() == {0, 1}
        assert after.values[0] == before.values[0]


def test_a_folder_of_other_settings_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    EXPERIMENTS["tab-vit"].outcome(Request("smoke", tmp_path, seeds=1))
    monkeypatch.setattr("sampa.lab.reproduce.grids.adamw", lambda run, lr: run)
    with pytest.raises(ValueError, match=r"must be as in .*run\.json"):
        EXPERIMENTS["tab-vit"].outcome(Request("smoke", tmp_path, seeds=1))


def test_tuning_is_recorded_with_its_scores(out: Path) -> None:
    outcome = EXPERIMENTS["fig-lambda"].outcome(Request("smoke", out, seeds=1))
    tuned = outcome.tuning["noise"]
    assert tuned.choice.lr in (0.05, 0.1)
    assert len(tuned.scores) >= 4
    run = RunFolder(out / "fig-lambda-smoke" / "conv-net-0.2" / "seed-0").run()
    assert run.base.lr == tuned.choice.lr
    # What was chosen by changed source is no record of a commit either.
    file = out / "tuning-noise-smoke" / next(iter(tuned.scores)) / "run.json"
    text = file.read_text()
    saved = json.loads(text)
    saved["conditions"]["commit"] = "abc-dirty"
    file.write_text(json.dumps(saved))
    again = EXPERIMENTS["fig-lambda"].outcome(Request("smoke", out, seeds=1))
    file.write_text(text)
    assert "abc-dirty" in again.conditions.values["commit"]


# ---- the command -----------------------------------------------------------------------------


def test_the_command_writes_table_numbers_figures_and_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "kept"
    options = ["--scale", "smoke", "--seeds", "1", "--out", str(tmp_path / "runs")]
    assert main(["reproduce", "tab-noise", *options, "--record", str(record), "--allow-dirty"]) == 0
    assert "label noise from 0 to 80 %" in capsys.readouterr().out
    names = {"README.md", "results.json", "runs.jsonl", "label-noise.svg", "label-noise.png"}
    assert {file.name for file in record.iterdir()} == names
    saved = Outcome.from_json(json.loads((record / "results.json").read_text(encoding="utf-8")))
    assert (saved.id, saved.scale, len(saved.entries)) == ("tab-noise", "smoke", 20)
    lines = (record / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 20
    assert {"id", "run", "conditions", "metrics", "result", "place"} == json.loads(lines[0]).keys()


def test_notes_by_hand_are_part_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("What we think of it.\n", encoding="utf-8")
    out = ["--out", str(tmp_path / "runs"), "--record", str(tmp_path), "--allow-dirty"]
    assert main(["reproduce", "fig-toy", "--scale", "smoke", "--seeds", "1", *out]) == 0
    assert "What we think of it." in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_an_unknown_experiment_gets_the_nearest_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "tab-nois"]) == 2
    assert "did you mean 'tab-noise'" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [80, 100, 300])
def test_the_list_has_every_experiment_with_values_and_times(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["reproduce", "--list"]) == 0
    shown = capsys.readouterr().out
    for name, experiment in EXPERIMENTS.items():
        assert name in shown
        assert experiment.time["paper"].split()[0] in shown
    assert "96.29 ± 0.06" in " ".join(shown.split())  # a value of the paper
    assert max(map(len, shown.splitlines())) <= columns


def test_a_narrow_list_breaks_no_word_and_stays_short(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main(["reproduce", "--list"])
    shown = capsys.readouterr().out
    words = set(shown.split())
    for experiment in EXPERIMENTS.values():
        assert set(experiment.title.split()) <= words
    assert "…" not in shown
    assert len(shown.splitlines()) <= 7 * len(EXPERIMENTS)


def test_no_experiment_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == 2
    assert "tab-cifar10" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--seeds", "--devices", "--jobs"])
def test_numbers_must_be_at_least_one(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "fig-toy", option, "0"]) == 2
    assert f"{option[2:]} must be >= 1, got 0" in capsys.readouterr().err


# ---- what is measured ------------------------------------------------------------------------


def test_the_toy_figure_has_the_papers_order() -> None:
    paths = {name: toy.distances(make, seed=0) for name, make in toy.TOY_METHODS.items()}
    tail = {name: max(path[-20:]) for name, path in paths.items()}
    assert max(tail["SAM"], tail["SAMPa-0"], tail["SAMPa-0.2"]) < 0.03
    assert tail["SAMPa-1 (OptGD)"] < 1e-9
    assert min(tail["RandSAM"], tail["OptSAM"]) > 0.03
    assert paths["OptSAM"][-1] == pytest.approx(toy.RHO, rel=1e-6)


def test_the_potential_obeys_the_lemma_and_the_mean_its_bound() -> None:
    for name in theory.PROBLEMS:
        found = theory.trace(theory.PROBLEMS[name](0), 50)
        assert found.violations == 0
        assert 0 < found.mean < found.bound


def test_a_rise_above_the_lemmas_bound_would_be_counted() -> None:
    problem = theory.quadratic(0)
    trace = theory.Trajectory(problem, 0.1, [1.0, 0.9, 2.0], [0.95, 0.85, 0.0], [1.0, 1.0, 1.0])
    assert trace.violations == 1


def test_the_gap_is_zero_where_x_and_y_are_the_same(tmp_path: Path) -> None:
    """With ρ = 0 and λ = 0, x_{t+1} and y_{t+1} take the same step: cosine 1 and distance 0."""
    (run,) = EXPERIMENTS["fig-gradient-gap"].runs("smoke")
    run = run.changed(method="sampa-0", rho=0.0, epochs=2)
    found = gap.watched(run, tmp_path, Request("smoke", tmp_path))
    assert found.cosine == pytest.approx([1.0] * len(found.cosine), abs=1e-6)
    assert max(found.relative) < 1e-6


def test_a_place_that_one_seed_lacks_does_not_shift_the_others() -> None:
    whole, dropped = gap.Gap([0.1, 0.2, 0.3], [0.9, 0.8, 0.7]), gap.Gap([0.1, 0.3], [0.5, 0.3])
    for found in ([whole, dropped], [dropped, whole]):
        band = gap._band(found, "cosine")
        assert band.x == [0.1, 0.3]
        assert band.y == pytest.approx([0.7, 0.5])
        assert (band.low, band.high) == ([0.5, 0.3], [0.9, 0.7])


def test_watching_does_not_change_the_run(tmp_path: Path) -> None:
    (run,) = EXPERIMENTS["fig-gradient-gap"].runs("smoke")
    request = Request("smoke", tmp_path)
    gap.watched(run, tmp_path / "watched", request)
    alone = runner.train_all({tmp_path / "alone": run}, request, "alone")
    seen = runner.finished(tmp_path / "watched", run)
    assert seen.test == alone[tmp_path / "alone"].test


@pytest.mark.parametrize(
    ("name", "row", "theirs"),
    [
        ("full-cifar10", "pooled ResNet", "ResNet-56"),
        ("tab-cifar10", "conv net", "Average"),
    ],
)
def test_a_network_of_ours_stands_beside_a_row_of_the_papers(
    tmp_path: Path, name: str, row: str, theirs: str
) -> None:
    """With its values and verdicts; the page says whose they are."""
    outcome = EXPERIMENTS[name].outcome(Request("smoke", tmp_path, seeds=1))
    known = published(name).values[theirs]
    assert {entry.column: entry.paper for entry in outcome.entries} == known
    assert f"The paper's values for {row} are those of its {theirs}." in outcome_page(outcome)
    assert all(comparison.paper is not None for comparison in outcome.comparisons())
