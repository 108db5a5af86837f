"""Hyper-parameters out of range: refused at construction, with name, rule and value."""

from __future__ import annotations

import inspect
import math
import re
from functools import partial
from typing import Any

import pytest
import torch

import sampa

NAN, INF = math.nan, math.inf

# Method and argument: values that are refused, and the rule that the message gives.
REFUSED: dict[str, dict[str, tuple[list[Any], str]]] = {
    "sampa": {
        "lam": ([-0.1, 1.1, NAN], "lam must be in [0, 1]"),
        "bootstrap": (["article"], "bootstrap must be one of 'paper', 'script'"),
        "bn_pass": (["clean"], "bn_pass must be one of 'lookahead', 'perturbed'"),
    },
    "sam-db": {"perturb_on": (["last"], "perturb_on must be one of 'next', 'previous'")},
    "asam": {
        "eta": ([-0.1, INF, NAN], "eta must be finite and >= 0"),
        "operator": (["row"], "operator must be one of 'element', 'filter', 'layer'"),
        "p": ([1, NAN], "p must be 2 or infinity"),
    },
    "msam": {
        "micro_batch_size": ([0], "micro_batch_size must be >= 1"),
        "num_shards": ([0], "num_shards must be >= 1 or None"),
    },
    "vasso": {"theta": ([0.0, 1.1, NAN], "theta must be in (0, 1]")},
    "bisam": {
        "phi": (["exp"], "phi must be one of 'log', 'tanh'"),
        "mu": ([0.0, INF, NAN], "mu must be finite and > 0"),
        "alpha": ([0.0, INF, NAN], "alpha must be finite and > 0"),
    },
    "looksam": {
        "k": ([0, -1], "k must be >= 1"),
        "alpha": ([INF, NAN], "alpha must be finite"),
    },
    "ae-sam": {
        "delta": ([-0.1, 1.0, NAN], "delta must be in [0, 1)"),
        "lambda1": ([-INF, NAN], "lambda1 must be finite"),
        "lambda2": ([INF, NAN], "lambda2 must be finite"),
        "total_steps": ([0, -3], "total_steps must be > 0 or None"),
    },
    "saf": {
        "lam": ([-0.1, INF, NAN], "lam must be finite and >= 0"),
        "tau": ([0.0, INF, NAN], "tau must be finite and > 0"),
        "start_epoch": ([-1], "start_epoch must be >= 0"),
        "end_epoch": ([-1], "end_epoch must be >= 0 or None"),
        "gap": ([0], "gap must be >= 1"),
    },
    "mesa": {
        "lam": ([-0.1, INF, NAN], "lam must be finite and >= 0"),
        "tau": ([0.0, INF, NAN], "tau must be finite and > 0"),
        "start_epoch": ([-1], "start_epoch must be >= 0"),
        "end_epoch": ([-1], "end_epoch must be >= 0 or None"),
        "decay": ([-0.1, 1.1, NAN], "decay must be in [0, 1]"),
    },
    "esam": {
        "beta": ([0.0, 1.1, NAN], "beta must be in (0, 1]"),
        "gamma": ([0.0, 1.1, NAN], "gamma must be in (0, 1]"),
        "swp": (["layer"], "swp must be one of 'tensor', 'element'"),
    },
    "rst": {
        "p": ([-0.1, 1.1, NAN], "p must be in [0, 1]"),
        "schedule": (["cosine"], "schedule must be one of 'constant', 'piecewise1'"),
        "total_steps": ([0], "total_steps must be > 0"),
        "gamma": ([INF, NAN], "gamma must be finite or None"),
        "warmup": ([-1], "warmup must be >= 0"),
    },
    "ssam-f": {
        "sparsity": ([-0.1, 1.1, NAN], "sparsity must be in [0, 1]"),
        "mask": (["random"], "mask must be one of 'fisher', 'dynamic'"),
        "update_freq": ([0], "update_freq must be >= 1"),
        "num_samples": ([0], "num_samples must be >= 1"),
        "drop_rate": ([-0.1, 1.1, NAN], "drop_rate must be in [0, 1]"),
        "drop": (["sign"], "drop must be one of 'gradient', 'weight', 'random'"),
        "growth": (["sign"], "growth must be one of 'gradient', 'weight', 'random'"),
        "epochs": ([0], "epochs must be >= 1 or None"),
    },
    "penalty": {"alpha": ([INF, NAN], "alpha must be finite")},
    "gsam": {
        "alpha": ([INF, NAN], "alpha must be finite"),
        "rho_min": ([0.1], "lr_max must be given together with rho_min"),
        "lr_max": ([0.1], "lr_max must be given together with rho_min"),
    },
    "friendly-sam": {
        "sigma": ([INF, NAN], "sigma must be finite"),
        "lmbda": ([-0.1, 1.1, NAN], "lmbda must be in [0, 1]"),
    },
    "momentum-sam": {
        "decay_at": (["before"], "decay_at must be one of 'clean', 'perturbed', 'after'")
    },
    "fisher-sam": {"eta": ([-0.1, INF, NAN], "eta must be finite and >= 0")},
    "wsam": {"gamma": ([-0.1, 1.0, NAN], "gamma must be in [0, 1)")},
    "async-sam": {
        "tau": ([2, -1], "tau must be 0 or 1"),
        "ascent_share": ([0.0, 1.1, NAN], "ascent_share must be in (0, 1]"),
        "ascent_batch": (["last"], "ascent_batch must be one of 'previous', 'next'"),
    },
    "multi-step-sam": {"steps": ([0, -1], "steps must be >= 1")},
}

# Arguments that another one must be given with, to be looked at on their own.
COMPANIONS: dict[tuple[str, str], dict[str, Any]] = {
    ("rst", "total_steps"): {"schedule": "linear1"},
}

# Pairs of arguments that cannot both be as they are.
IMPOSSIBLE: list[tuple[str, dict[str, Any], str]] = [
    ("rst", {"schedule": "linear1"}, "total_steps must be > 0 for this schedule, got None"),
    ("saf", {"gap": 9}, "start_epoch must be >= gap - 1 = 8, got 5"),
    ("gsam", {"rho_min": -1.0, "lr_max": 0.1}, "rho_min must be >= 0, got -1.0"),
    ("gsam", {"rho_min": NAN, "lr_max": 0.1}, "rho_min must be >= 0, got nan"),
    (
        "gsam",
        {"rho_min": 0.0, "lr_max": 0.1, "lr_min": 0.2},
        "lr_max must be >= lr_min = 0.2, got 0.1",
    ),
    (
        "async-sam",
        {"tau": 0, "ascent_batch": "next"},
        "tau must be 1 with ascent_batch='next', got 0",
    ),
]

# Neither a number nor a choice, but a piece or a function; or checked in the other tests.
UNCHECKED = {
    *("base", "options", "geometry", "direction", "ascent_loss", "micro_batches", "select"),
    *("inside", "coins", "subset", "lr_min", "rho"),
}


def sgd() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.9)


CASES = [
    pytest.param(name, argument, value, rule, id=f"{name}-{argument}={value}")
    for name, arguments in REFUSED.items()
    for argument, (values, rule) in arguments.items()
    for value in values
]


@pytest.mark.parametrize(("name", "argument", "value", "rule"), CASES)
def test_a_value_out_of_range_is_refused(name: str, argument: str, value: Any, rule: str) -> None:
    settings = {argument: value, **COMPANIONS.get((name, argument), {})}
    with pytest.raises(ValueError, match=re.escape(rule)):
        sampa.METHODS[name](sgd(), **settings)


@pytest.mark.parametrize(("name", "settings", "message"), IMPOSSIBLE)
def test_values_that_do_not_go_together_are_refused(
    name: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        sampa.METHODS[name](sgd(), **settings)


WITH_RADIUS = [n for n in sampa.METHODS if n not in ("base", "optgd", "saf", "mesa")]


@pytest.mark.parametrize("value", [-0.1, NAN, INF, "0.1"])
@pytest.mark.parametrize("name", WITH_RADIUS)
def test_a_radius_out_of_range_is_refused(name: str, value: Any) -> None:
    argument = "gamma" if name == "fisher-sam" else "rho"
    message = re.escape(f"rho must be finite and >= 0, got {value!r}")
    with pytest.raises(ValueError, match=message):
        sampa.METHODS[name](sgd(), **{argument: value})


@pytest.mark.parametrize("name", WITH_RADIUS)
def test_a_groups_radius_out_of_range_is_refused(name: str) -> None:
    base = sgd()
    base.param_groups[0]["rho"] = -1.0
    with pytest.raises(ValueError, match=r"rho must be finite and >= 0, got -1\.0"):
        sampa.METHODS[name](base)


@pytest.mark.parametrize("name", sampa.METHODS)
def test_every_argument_has_an_error_input(name: str) -> None:
    """A new hyper-parameter must come with a check and a row above."""
    factory = sampa.METHODS[name]
    function = factory.func if isinstance(factory, partial) else factory
    rows = {"sampa-0": "sampa", "ssam-d": "ssam-f"}.get(name, name.split("+")[0])
    checked = set(REFUSED.get(rows, {})) | ({"gamma"} if name == "fisher-sam" else set())
    arguments = inspect.signature(function).parameters.values()
    numbers = {a.name for a in arguments if not isinstance(a.default, bool)}
    assert numbers <= checked | UNCHECKED
