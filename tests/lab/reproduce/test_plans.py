"""Plans: what is run at each scale, above all that the paper's recipes stay untouched."""

from __future__ import annotations

import pytest

from sampa.lab.reproduce import grids
from sampa.lab.reproduce.catalog import EXPERIMENTS
from sampa.lab.reproduce.settings import images, in_proportion, run_in_words
from sampa.lab.reproduce.tuning import GRIDS, SEED, tune
from sampa.lab.results.outcome import Choice
from sampa.lab.results.paper import SCALES, Scale
from sampa.lab.training.hyperparameters import radius_of
from sampa.lab.training.method import checked_method
from sampa.lab.training.recipes import find_recipe
from sampa.lab.training.run import Run

TRAINED = [name for name, e in EXPERIMENTS.items() if e.runs("cpu")]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", TRAINED)
def test_every_run_can_be_made(name: str, scale: Scale) -> None:
    """Its method exists and takes the hyper-parameters; nothing is trained."""
    runs = EXPERIMENTS[name].runs(scale)
    assert runs
    for run in runs:
        checked_method(run)


SETTINGS = ("data", "model", "base", "schedule", "rhos", "batch_size", "label_smoothing", "select")


@pytest.mark.parametrize("name", TRAINED)
def test_at_the_papers_scale_the_recipes_are_untouched(name: str) -> None:
    """Only the method is chosen; ρ and epochs where the paper's text changes them."""
    for run in EXPERIMENTS[name].runs("paper"):
        recipe = find_recipe(run.name)
        for field in (*SETTINGS, "max_norm", "base_epochs"):
            assert getattr(run, field) == getattr(recipe, field), (run.method, field)
        assert run.epochs in (recipe.epochs, 2 * recipe.epochs)


def test_only_the_last_column_has_twice_the_epochs() -> None:
    for cell in grids.plan_cifar10("paper", {}).entries:
        assert cell.run.epochs == (400 if cell.column == grids.TWICE else 200)
        assert cell.run.base_epochs == 400


def test_the_papers_networks_are_all_there() -> None:
    rows = [cell.readings[0][0] for cell in grids.plan_cifar10("paper", {}).entries]
    assert set(rows) == {"DenseNet-121", "ResNet-56", "VGG19-BN", "WRN-28-2", "WRN-28-10"}


def test_the_sweep_has_one_rho_for_all_lambdas() -> None:
    runs = [cell.run for cell in grids.plan_lambdas("paper", {}).entries]
    assert {run.rho for run in runs} == {0.1}
    assert [run.method for run in runs[:11]] == [
        *("sampa-0", "sampa-0.1", "sampa-0.2", "sampa-0.3", "sampa-0.4", "sampa-0.5"),
        *("sampa-0.6", "sampa-0.7", "sampa-0.8", "sampa-0.9", "sampa-1"),
    ]


@pytest.mark.parametrize("name", TRAINED)
def test_reduced_runs_say_what_they_are(name: str) -> None:
    for run in EXPERIMENTS[name].runs("cpu"):
        assert run.about == run_in_words(run)
        assert f"{run.epochs} epoch" in run.about


def test_a_description_has_images_size_noise_network_and_epochs() -> None:
    text = run_in_words(images("cpu", None, noise=40))
    for part in ("10,000 images", "16×16", "40 % wrong labels", "conv3 (width 32)", "30 epochs"):
        assert part in text


def test_label_noise_has_labels_by_people_too() -> None:
    runs = [run for run in EXPERIMENTS["tab-noise"].runs("cpu") if run.data.human_labels]
    assert {run.method for run in runs} == {"sgd", "sam", "sampa-0", "sampa-0.2"}
    assert all(run.data.label_noise == 0 and "human labels (worse)" in run.about for run in runs)


def test_rho_is_doubled_for_sampa_unless_it_was_chosen() -> None:
    run = images("cpu", Choice(0.1, 0.05))
    assert (run.rhos["sam"], run.rhos["sampa-0"], run.rhos["sampa-0.2"]) == (0.05, 0.05, 0.1)
    run = images("cpu", Choice(0.1, 0.05, {"sampa-0.2": 0.4}))
    assert (run.rhos["sam"], run.rhos["sampa-0"], run.rhos["sampa-0.2"]) == (0.05, 0.05, 0.4)


PAPERS_RADII = ("late-cifar10", "tab-glue")


@pytest.mark.parametrize("name", [name for name in TRAINED if name not in PAPERS_RADII])
def test_every_radius_of_the_reduced_edition_is_chosen_by_a_tuning_of_the_experiment(
    name: str,
) -> None:
    """Each judge gets a radius that nothing else has: none of another origin may be left."""
    experiment = EXPERIMENTS[name]
    chosen: dict[str, Choice] = {}
    for tuning in experiment.tunings:
        judges = GRIDS[tuning]["cpu"].judges
        rhos = {m: 0.001 * (i + 1) for i, m in enumerate(judges)}
        chosen[tuning] = Choice(0.05, 0.77, rhos)
    assert experiment.planner is not None
    for entry in experiment.planner("cpu", chosen).entries:
        radius = radius_of(entry.run)
        assert radius is None or radius < 0.05, (entry.column, entry.run.method)


def test_levels_of_noise_have_the_radii_that_were_chosen_for_them() -> None:
    levels = ("clean", "noise", "noise80")
    chosen = {n: Choice(0.05, 0.1, {"sam": 0.01 * (i + 1)}) for i, n in enumerate(levels)}
    found = {
        e.readings[0][0]: radius_of(e.run)
        for e in grids.plan_noise("cpu", chosen).entries
        if e.column == "SAM"
    }
    assert found == {"0 %": 0.01, "40 %": 0.02, "80 %": 0.03, grids.HUMAN: 0.02}


def test_variants_keep_their_proportion_to_sams_rho() -> None:
    """ASAM has ten times SAM's ρ in the paper, and twice that with SAMPa."""
    run = images("cpu", Choice(0.1, 0.2))
    assert in_proportion(run, "asam").rho == pytest.approx(2.0)
    assert in_proportion(run, "sampa+asam").rho == pytest.approx(4.0)
    assert in_proportion(run, "saf").rho is None


# ---- tuning ----------------------------------------------------------------------------------


def test_tuning_takes_the_best_validation_scores_on_a_seed_of_its_own() -> None:
    seen: dict[str, Run] = {}

    def score(trials: dict[str, Run]) -> dict[str, float]:
        seen.update(trials)
        return {
            name: (run.base.lr == 0.1) + (run.rhos["sam"] == 0.2 and run.method != "sgd")
            for name, run in trials.items()
        }

    found = tune("noise", "smoke", score)
    assert found is not None
    assert found.choice == Choice(0.1, 0.2)
    runs = list(seen.values())
    assert {run.seed for run in runs} == {SEED}
    assert {run.base.lr for run in runs[:4]} == {0.05, 0.1}
    assert {run.base.lr for run in runs[4:]} == {0.1}
    assert set(found.scores) == set(seen)


def test_radii_of_variants_are_tried_in_proportion_to_sams() -> None:
    """AE-SAM and others have SAM's ρ in the paper, ASAM ten times that."""

    def score(trials: dict[str, Run]) -> dict[str, float]:
        return {name: -abs(run.rhos["sam"] - 0.2) for name, run in trials.items()}

    found = tune("incorporated", "cpu", score)
    assert found is not None
    assert found.choice.rhos["asam"] == pytest.approx(2.0)
    assert found.choice.rhos["sampa+asam"] == pytest.approx(4.0)
    assert "asam-lr0.05-rho2" in found.scores
    run = in_proportion(images("cpu", found.choice), "asam")
    assert radius_of(run) == pytest.approx(2.0)


def test_the_learning_rate_of_glue_is_chosen_by_the_base_alone() -> None:
    seen: dict[str, Run] = {}

    def score(trials: dict[str, Run]) -> dict[str, float]:
        seen.update(trials)
        return {name: -run.base.lr for name, run in trials.items()}

    found = tune("glue", "cpu", score)
    assert found is not None
    assert found.choice.lr == 5e-5
    assert {run.method for run in seen.values()} == {"adamw"}
    assert {run.data.validation for run in seen.values()} == {0.1}
    reported = [e.run for e in grids.plan_glue("cpu", {"glue": found.choice}).entries]
    assert {run.base.lr for run in reported} == {5e-5}
    assert {(run.data.name, run.data.subset, run.data.validation) for run in reported} == {
        ("glue/mrpc", None, 0.0),
        ("glue/sts-b", None, 0.0),
    }


def test_each_method_gets_its_own_rho_from_inside_what_was_tried() -> None:
    best = {"sam": 0.025, "sampa-0": 0.1, "sampa-0.2": 1.6}  # below, inside and above the first
    asked: list[list[str]] = []

    def score(trials: dict[str, Run]) -> dict[str, float]:
        asked.append(list(trials))
        return {n: -abs(run.rhos[run.method] - best[run.method]) for n, run in trials.items()}

    found = tune("full", "cpu", score)
    assert found is not None
    assert found.choice == Choice(0.1, 0.025, best)
    first, *more = asked
    assert len(first) == 9
    assert more == [
        ["sam-lr0.1-rho0.025", "sampa-0.2-lr0.1-rho0.8"],
        ["sam-lr0.1-rho0.0125", "sampa-0.2-lr0.1-rho1.6"],
        ["sampa-0.2-lr0.1-rho3.2"],
    ]
    assert set(found.scores) == {name for names in asked for name in names}
    assert images("cpu", found.choice).rhos["sampa-0.2"] == 1.6


def test_a_method_that_gains_nothing_by_perturbing_ends_its_tuning() -> None:
    def score(trials: dict[str, Run]) -> dict[str, float]:
        return {name: -run.rhos["sam"] for name, run in trials.items()}

    found = tune("full", "cpu", score)
    assert found is not None
    assert found.choice.rho == 0.05 / 8


def test_the_paper_scale_is_not_tuned() -> None:
    assert tune("clean", "paper", lambda trials: pytest.fail("nothing should run")) is None
