"""What charts draw, against numbers worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

from sampa.lab.report.series import bands, clouds, describe_bands, describe_clouds, sweeps
from tests.lab.report.folders import a_run, only_recipe, write_grid, write_run


def test_a_band_is_the_mean_and_the_extremes_of_the_seeds(tmp_path: Path) -> None:
    """sgd's seeds end at 90, 91 and 92; validation is 3, 2 and 1 lower at epochs 1, 2, 3."""
    band = bands(only_recipe(write_grid(tmp_path)), "validation_accuracy")[0]
    assert (band.label, band.x) == ("sgd", [1, 2, 3])
    assert band.mean == [88, 89, 90]
    assert (band.low, band.high) == ([87, 88, 89], [89, 90, 91])


def test_variants_without_a_curve_have_no_band(tmp_path: Path) -> None:
    found = bands(only_recipe(write_grid(tmp_path)), "sharpness")
    assert [band.label for band in found] == ["sam", "sampa"]


def test_an_epoch_counts_the_seeds_that_came_to_it(tmp_path: Path) -> None:
    write_run(tmp_path / "a", a_run(seed=0), 90.0)
    folder = write_run(tmp_path / "b", a_run(seed=1), 92.0)
    folder.append({"epoch": 3, "validation_accuracy": 80.0})
    (band,) = bands(only_recipe(tmp_path), "validation_accuracy")
    assert band.mean == [88, 89, 90, 80]


def test_an_epoch_that_was_not_finite_is_a_gap(tmp_path: Path) -> None:
    write_run(tmp_path / "a", a_run(seed=0)).append({"epoch": 3, "train_loss": math.nan})
    write_run(tmp_path / "b", a_run(seed=1)).append({"epoch": 3, "train_loss": 1.0})
    (band,) = bands(only_recipe(tmp_path), "train_loss")
    assert all(math.isnan(values[3]) for values in (band.mean, band.low, band.high))


def test_curves_are_told_in_words(tmp_path: Path) -> None:
    found = bands(only_recipe(write_grid(tmp_path, {"sgd": (90.0,)})), "validation_accuracy")
    expected = "Mean over seeds, from first to last epoch. sgd: 87 to 89."
    assert describe_bands(found) == expected


def test_a_cloud_has_every_run_and_their_mean(tmp_path: Path) -> None:
    found = clouds(only_recipe(write_grid(tmp_path)))
    sam = found[1]
    assert sam.points == [(20, 91), (21, 93), (22, 92)]
    assert sam.center == (21, 92)
    assert "sam: 92 in 21.0 seconds" in describe_clouds(found)


# ---- λ ---------------------------------------------------------------------------------------


def test_runs_that_differ_in_lambda_only_are_a_sweep(tmp_path: Path) -> None:
    rhos = {"sampa-0": 0.1, "sampa-0.1": 0.1, "sampa": 0.1}
    scores = {"sgd": (90.0, 91.0), "sampa-0": (92.0, 94.0), "sampa-0.1": (93.0,), "sampa": (95.0,)}
    (sweep,) = sweeps(only_recipe(write_grid(tmp_path, scores, rhos=rhos)))
    assert (sweep.method, sweep.lams, sweep.mean) == ("sampa", [0, 0.1, 0.2], [93, 93, 95])
    assert sweep.std == [math.sqrt(2), 0, 0]
    assert sweep.reference == 90.5


def test_lambda_may_be_given_by_option(tmp_path: Path) -> None:
    for lam in (0.2, 0.4):
        write_run(tmp_path / str(lam), a_run("sampa", lam=lam), 90 + lam)
    (sweep,) = sweeps(only_recipe(tmp_path))
    assert sweep.lams == [0.2, 0.4]
    assert sweep.reference is None  # the baseline is one of its points


def test_runs_that_differ_in_rho_too_are_no_sweep(tmp_path: Path) -> None:
    rhos = {"sampa-0": 0.1, "sampa": 0.2}
    scores = {"sampa-0": (92.0,), "sampa": (95.0,)}
    assert not sweeps(only_recipe(write_grid(tmp_path, scores, rhos=rhos)))
