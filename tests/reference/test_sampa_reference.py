"""The library against the plain recurrences, after every update, at zero tolerance in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import sampa
from tests.problems import (
    BASES,
    Batch,
    cross_entropy_of,
    tiny_mlp,
    trajectory,
    vector_batches,
)
from tests.reference import algorithms

RHO, LAM = 0.3, 0.2

CASES: dict[
    str, tuple[algorithms.Recurrence, Callable[..., sampa.SharpnessAware], dict[str, Any]]
] = {
    "base": (algorithms.base, sampa.Base, {}),
    "sam": (algorithms.sam, sampa.SAM, {"rho": RHO}),
    "sam-db": (algorithms.sam_db, sampa.SAMdb, {"rho": RHO}),
    "optsam": (algorithms.opt_sam, sampa.OptSAM, {"rho": RHO}),
    "optgd": (algorithms.opt_gd, sampa.OptGD, {}),
    "sampa-0": (algorithms.sampa, sampa.SAMPa, {"rho": RHO, "lam": 0.0}),
    "sampa-0.2": (algorithms.sampa, sampa.SAMPa, {"rho": RHO, "lam": LAM}),
    "sampa-1": (algorithms.sampa, sampa.SAMPa, {"rho": RHO, "lam": 1.0}),
}

MORE_BASES: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.5),
    "sgd-fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adamw-fused": lambda p: torch.optim.AdamW(p, lr=0.05, fused=True),
    "adamw-foreach": lambda p: torch.optim.AdamW(p, lr=0.05, foreach=True),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.05, t0=3),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.05),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
}
ALL_BASES = {**BASES, **MORE_BASES}


def gradient_of(model: torch.nn.Module) -> algorithms.Gradient:
    """∇f(x; B) without touching the model's weights."""
    names = [name for name, _ in model.named_parameters()]

    def grad(x: list[Tensor], batch: Batch) -> list[Tensor]:
        inputs, targets = batch
        leaves = [t.clone().requires_grad_() for t in x]
        named = dict(zip(names, leaves, strict=True))
        outputs = torch.func.functional_call(model, named, (inputs,))
        loss = torch.nn.functional.cross_entropy(outputs, targets)
        return list(torch.autograd.grad(loss, leaves))

    return grad


def assert_agrees(
    recurrence: algorithms.Recurrence,
    factory: Callable[..., sampa.SharpnessAware],
    settings: dict[str, Any],
    make_base: Callable[[Any], torch.optim.Optimizer],
    reference_settings: dict[str, Any] | None = None,
) -> None:
    batches = vector_batches(9)
    model, twin = tiny_mlp(), tiny_mlp()
    actual = trajectory(
        factory(make_base(model.parameters()), **settings), model, batches, cross_entropy_of(model)
    )
    arguments = settings if reference_settings is None else reference_settings
    x_0 = [p.detach().clone() for p in twin.parameters()]
    expected = [
        torch.cat([t.flatten() for t in x])
        for x in recurrence(
            gradient_of(twin), make_base(twin.parameters()), x_0, batches, **arguments
        )
    ]
    assert len(actual) == len(expected)
    for t, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        assert torch.equal(ours, theirs), f"first difference after update {t + 1}"


@pytest.mark.parametrize("base", ALL_BASES)
@pytest.mark.parametrize("method", CASES)
def test_every_update_equals_the_plain_recurrence_bitwise(method: str, base: str) -> None:
    recurrence, factory, settings = CASES[method]
    assert_agrees(recurrence, factory, settings, ALL_BASES[base])


@pytest.mark.parametrize("base", BASES)
def test_previous_batch_form_of_sam_db_equals_its_recurrence_bitwise(base: str) -> None:
    assert_agrees(
        algorithms.sam_db_previous,
        sampa.SAMdb,
        {"rho": RHO, "perturb_on": "previous"},
        BASES[base],
        {"rho": RHO},
    )


@pytest.mark.parametrize("base", BASES)
def test_published_scripts_start_equals_its_recurrence_bitwise(base: str) -> None:
    assert_agrees(
        algorithms.sampa_script,
        sampa.SAMPa,
        {"rho": RHO, "lam": LAM, "bootstrap": "script"},
        BASES[base],
        {"rho": RHO, "lam": LAM},
    )


def test_reference_peek_is_the_formula_for_sgd() -> None:
    """The oracle itself: y = x − η (g + wd x + μ buf), to the last bit but rounding (1e-15)."""
    model = tiny_mlp()
    m = BASES["sgd-momentum"](model.parameters())
    x = [p.detach().clone() for p in model.parameters()]
    g = [torch.full_like(t, 0.5) for t in x]
    m, x = algorithms.model_update(m, x, g)
    buffers = [m.state[p]["momentum_buffer"] for p in m.param_groups[0]["params"]]
    _, y = algorithms.model_update(m, x, g)
    for t, gradient, buffer, result in zip(x, g, buffers, y, strict=True):
        formula = t - 0.1 * (gradient + 0.01 * t + 0.9 * buffer)
        torch.testing.assert_close(result, formula, rtol=0, atol=1e-15)
