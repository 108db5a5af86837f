"""Every experiment of the paper by its ID."""

from __future__ import annotations

from functools import partial

from sampa.lab.reproduce import causes, gap, grids, over_time, peers, theory, times, toy
from sampa.lab.reproduce.plan import Experiment, Planner
from sampa.lab.reproduce.runner import Pictures, run_grid
from sampa.messages import unknown


def grid(
    name: str,
    planner: Planner,
    tunings: tuple[str, ...],
    seeds: int,
    paper: str,
    pictures: Pictures = lambda outcome: (),
) -> Experiment:
    """An experiment that is a grid of training runs."""
    options = {"tunings": tunings, "seeds": seeds, "pictures": pictures}
    complete = partial(run_grid, planner=planner, **options)
    return Experiment(name, complete, paper, planner=planner, seeds=seeds, tunings=tunings)


WEEKS, DAYS, ONE_GPU = "weeks on 2 GPUs", "days on 2 GPUs", "days on 1 GPU"
MINUTE = "a minute on two GPUs"
CLEAN_LABELS, NOISE, NOISE80 = ("clean",), ("noise",), ("noise80",)
NOISES = (*CLEAN_LABELS, *NOISE, *NOISE80)
_ALL = (
    Experiment("fig-toy", toy.toy_figure, "seconds", "seconds"),
    Experiment("theory", theory.theory_bounds, "seconds", "seconds"),
    grid("full-cifar10", grids.plan_full_cifar10, ("full",), 5, WEEKS),
    Experiment(
        "accuracy-over-time",
        over_time.accuracy_over_time,
        WEEKS,
        planner=grids.plan_full_cifar10,
        seeds=over_time.CURVES_SEEDS,
        tunings=over_time.CURVES_TUNINGS,
    ),
    grid("late-cifar10", grids.plan_late_cifar10, (), 3, "an hour on 2 GPUs"),
    grid("tab-cifar10", grids.plan_cifar10, CLEAN_LABELS, 10, WEEKS),
    grid("tab-cifar100", grids.plan_cifar100, ("cifar100",), 5, WEEKS),
    grid("tab-imagenet", grids.plan_imagenet, CLEAN_LABELS, 3, WEEKS),
    Experiment("fig-efficiency", times.efficiency_figure, MINUTE, "1 min"),
    Experiment(
        "tab-efficiency",
        times.efficiency_table,
        DAYS,
        planner=grids.plan_efficiency,
        seeds=times.EFFICIENT_SEEDS,
        tunings=times.EFFICIENT_TUNINGS,
    ),
    Experiment("tab-memory", times.memory, MINUTE, "1 min"),
    grid("tab-vit", grids.plan_vit, ("fine-tuning",), 3, "a day on 2 GPUs"),
    grid("tab-glue", grids.plan_glue, ("glue",), 3, DAYS),
    grid("tab-noise", grids.plan_noise, NOISES, 5, WEEKS, grids.over_noise),
    grid("tab-incorporation", grids.plan_incorporation, (*NOISE, "incorporated"), 3, DAYS),
    grid("tab-optsam", grids.plan_optsam, (*CLEAN_LABELS, "naive"), 5, ONE_GPU),
    grid("tab-sam-db", grids.plan_sam_db, (*CLEAN_LABELS, "naive"), 5, ONE_GPU),
    grid("tab-penalty", grids.plan_penalty, (*CLEAN_LABELS, *NOISE80), 5, DAYS),
    grid("fig-lambda", grids.plan_lambdas, NOISE, 3, WEEKS, grids.over_lambda),
    Experiment(
        "fig-gradient-gap",
        gap.gradient_gap,
        "a day on 1 GPU",
        planner=gap.plan_gap,
        tunings=CLEAN_LABELS,
        takes_over=False,
    ),
    Experiment(
        "peers",
        peers.compare_peers,
        ONE_GPU,
        planner=peers.plan_peers,
        seeds=peers.PEER_SEEDS,
        tunings=peers.PEER_TUNINGS,
        further=peers.plan_peers,
    ),
    grid("why-lambda", causes.plan_best_lambda, NOISE, 3, DAYS),
    grid("why-below-sam", causes.plan_one_radius, NOISE, 3, DAYS),
    grid("why-esam", causes.plan_esam_parts, times.EFFICIENT_TUNINGS, 5, DAYS),
    grid("why-epochs", causes.plan_twice_the_epochs, CLEAN_LABELS, 3, DAYS),
    Experiment("tab-two-devices", times.two_devices, MINUTE, "2 min"),
    Experiment("tab-batch-time", times.batch_time, MINUTE, "3 min"),
)

EXPERIMENTS: dict[str, Experiment] = {experiment.id: experiment for experiment in _ALL}


def find_experiment(name: str) -> Experiment:
    """The experiment of an ID.

    Raises:
        ValueError: Naming the nearest ones.
    """
    if name not in EXPERIMENTS:
        raise ValueError(unknown("experiment", name, EXPERIMENTS))
    return EXPERIMENTS[name]
