"""What the groups of a base optimizer may hold: numbers that are missing, and options refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

import sampa
from tests.problems import (
    Batch,
    cross_entropy_of,
    flat,
    same_bits,
    tiny_mlp,
    trajectory,
    vector_batches,
)

Make = Callable[[Optimizer], sampa.SharpnessAware]
BATCHES = vector_batches(4)
METHODS: dict[str, Make] = {
    "base": sampa.Base,
    "sam": sampa.SAM,
    "sampa": sampa.SAMPa,
    "wsam": sampa.WSAM,
    "momentum-sam": partial(sampa.MomentumSAM, decay_at="perturbed"),
    "mesa": sampa.MESA,
}
every_method = pytest.mark.parametrize("method", METHODS)
REMEDY = r"maximize must be False in every group, got True.*loss_fn return -loss"


# ---- maximize ------------------------------------------------------------------------------------


@every_method
def test_maximize_is_refused_with_the_remedy(method: str) -> None:
    base = SGD(tiny_mlp().parameters(), lr=0.1, maximize=True)
    with pytest.raises(ValueError, match=REMEDY):
        METHODS[method](base)


def test_a_group_with_maximize_is_not_added() -> None:
    model, added = tiny_mlp(), nn.Linear(2, 2)
    optimizer = sampa.SAM(SGD(model.parameters(), lr=0.1))
    with pytest.raises(ValueError, match=REMEDY):
        optimizer.add_param_group({"params": list(added.parameters()), "maximize": True})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("where", ["switched on", "added to the base"])
def test_maximize_that_comes_later_is_refused_in_the_next_step(where: str) -> None:
    model, added = tiny_mlp(), nn.Linear(2, 2)
    base = SGD(model.parameters(), lr=0.1)
    optimizer = sampa.SAM(base)
    optimizer.step(cross_entropy_of(model), BATCHES[0])
    if where == "switched on":
        base.param_groups[0]["maximize"] = True
    else:
        base.add_param_group({"params": list(added.parameters()), "maximize": True})
    before = flat(model)
    with pytest.raises(ValueError, match=REMEDY):
        optimizer.step(cross_entropy_of(model), BATCHES[1])
    assert torch.equal(flat(model), before)


def test_the_negated_loss_maximizes() -> None:
    """The remedy: the same bits as torch's maximize."""
    model, twin = tiny_mlp(), tiny_mlp()
    loss_fn, its_loss_fn = cross_entropy_of(model), cross_entropy_of(twin)
    optimizer = sampa.Base(SGD(model.parameters(), lr=0.01, momentum=0.9))
    base = SGD(twin.parameters(), lr=0.01, momentum=0.9, maximize=True)
    for batch in BATCHES:
        optimizer.step(lambda b: -loss_fn(b), batch)
        base.zero_grad()
        its_loss_fn(batch).backward()
        base.step()
    assert torch.equal(flat(model), flat(twin))


def test_differentiable_is_refused() -> None:
    base = SGD(tiny_mlp().parameters(), lr=0.1, differentiable=True)
    with pytest.raises(ValueError, match="differentiable must be False in every group, got True"):
        sampa.SAM(base)


# ---- numbers that are missing --------------------------------------------------------------------


class WithoutRate(Optimizer):
    """x ← x − 0.1 g, and nothing in its groups."""

    def __init__(self, parameters: Any, **defaults: Any) -> None:
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p -= 0.1 * p.grad
                    self.state[p]["exp_avg"] = p.grad.clone()


def path(make: Make, build: Callable[[Any], Optimizer], batches: list[Batch] = BATCHES) -> Any:
    model = tiny_mlp()
    return trajectory(make(build(model.parameters())), model, batches, cross_entropy_of(model))


NEED_NO_RATE: dict[str, Make] = {
    "sam": sampa.SAM,
    "sampa": sampa.SAMPa,
    "gsam": sampa.GSAM,
    "wsam": partial(sampa.WSAM, decouple=False),
}
NEED_RATE: dict[str, Make] = {
    "gsam": partial(sampa.GSAM, rho_min=0.0, lr_max=0.1),
    "wsam": sampa.WSAM,
}


@pytest.mark.parametrize("empty", [{}, {"lr": None, "weight_decay": None}])
@pytest.mark.parametrize("method", NEED_NO_RATE)
def test_a_base_without_a_learning_rate_will_do(method: str, empty: dict[str, Any]) -> None:
    ours = path(NEED_NO_RATE[method], lambda p: WithoutRate(p, **empty))
    expected = path(NEED_NO_RATE[method], lambda p: SGD(p, lr=0.1))
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-14)


@pytest.mark.parametrize("method", NEED_RATE)
def test_a_method_that_needs_the_learning_rate_says_so(method: str) -> None:
    with pytest.raises(ValueError, match=r"needs the learning rate.*groups without 'lr'; set it"):
        path(NEED_RATE[method], WithoutRate)


@pytest.mark.parametrize("method", NEED_RATE)
def test_a_learning_rate_may_be_a_tensor(method: str) -> None:
    rate = torch.tensor(0.125, dtype=torch.float64)  # a power of two: the same in every format
    ours = path(NEED_RATE[method], lambda p: AdamW(p, lr=rate, foreach=False))
    assert same_bits(ours, path(NEED_RATE[method], lambda p: AdamW(p, lr=0.125, foreach=False)))


def test_a_radius_below_zero_is_refused() -> None:
    make = partial(sampa.GSAM, rho=0.1, rho_min=0.0, lr_max=0.3, lr_min=0.2)
    with pytest.raises(ValueError, match=r"rho at this learning rate must be finite and >= 0"):
        path(make, lambda p: SGD(p, lr=0.1))


# ---- Momentum-SAM's decay ------------------------------------------------------------------------


def momentum_sam(decay_at: Any, **options: Any) -> Make:
    return partial(sampa.MomentumSAM, rho=0.3, decay_at=decay_at, perturb_eps=0.0, **options)


def test_a_decay_at_the_perturbed_weights_is_not_clipped() -> None:
    """With a tiny max_norm nothing of g is left, and the decay is as large as without."""
    kept = 1e-30
    at_x, at_x_tilde = (
        path(momentum_sam(d, max_norm=kept), partial(SGD, lr=0.1, momentum=0.9, weight_decay=0.5))
        for d in ("clean", "perturbed")
    )
    start = flat(tiny_mlp())
    v = 0.5 * start  # the first momentum: the decay alone
    expected = -0.1 * 0.5 * (-0.3 * v / v.norm())
    torch.testing.assert_close(at_x_tilde[1] - at_x[1], expected, rtol=0, atol=1e-14)


def test_a_decay_beside_the_step_is_moved_beside_the_step() -> None:
    """AdamW: x' − η wd (x̃ − x), and the moments do not see it."""
    build = partial(AdamW, lr=0.1, weight_decay=0.5)
    at_x, at_x_tilde = (path(momentum_sam(d), build, BATCHES[:2]) for d in ("clean", "perturbed"))
    model = tiny_mlp()
    base = build(model.parameters())
    sampa.MomentumSAM(base, rho=0.3).step(cross_entropy_of(model), BATCHES[0])
    v = torch.cat([state["exp_avg"].flatten() for state in base.state.values()])
    expected = -0.1 * 0.5 * (-0.3 * v / v.norm())
    torch.testing.assert_close(at_x_tilde[1] - at_x[1], expected, rtol=0, atol=1e-14)


def test_a_decay_after_the_step_needs_a_base_that_decays_beside_it() -> None:
    build = partial(SGD, lr=0.1, momentum=0.9, weight_decay=0.5)
    with pytest.raises(ValueError, match=r"decays by the gradient; use AdamW"):
        path(momentum_sam("after"), build)


# ---- parameters that change places ---------------------------------------------------------------


def square_mlp() -> nn.Sequential:
    """Layers whose parameters have the same shape, so that only identity tells them apart."""
    torch.manual_seed(0)
    first, second, head = (nn.Linear(4, 4, bias=False) for _ in range(3))
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), head).double()


def reverse(optimizer: sampa.SharpnessAware) -> None:
    optimizer.param_groups[1]["params"].reverse()


def reload(optimizer: sampa.SharpnessAware) -> None:
    """Save and load between the change and the next step."""
    reverse(optimizer)
    optimizer.load_state_dict(optimizer.state_dict())


def put_in_front(optimizer: sampa.SharpnessAware) -> None:
    moved = optimizer.param_groups[1]["params"].pop(0)
    optimizer.param_groups[0]["params"].insert(0, moved)


PLACES = {"sampa": sampa.SAMPa, "optsam": sampa.OptSAM, "vasso": sampa.VaSSO}
BESIDE = {
    "late checks": {"checks": "late"},
    "accumulated": {"accumulate": 2},
}


@pytest.mark.parametrize("change", [reverse, reload, put_in_front])
@pytest.mark.parametrize("method", [*PLACES, *BESIDE])
def test_what_a_method_holds_belongs_to_its_parameter_whatever_its_place(
    method: str, change: Callable[[sampa.SharpnessAware], None]
) -> None:
    make = PLACES.get(method, partial(sampa.SAMPa, **BESIDE.get(method, {})))

    def trained(change: Callable[[sampa.SharpnessAware], None]) -> torch.Tensor:
        model = square_mlp()
        *body, head = model.parameters()
        base = SGD([{"params": [head]}, {"params": body}], lr=0.5, momentum=0.9, fused=True)
        optimizer = make(base, rho=0.5, seed=0)
        loss_fn = cross_entropy_of(model)
        for i, batch in enumerate(BATCHES):
            if i == 2:
                change(optimizer)
            optimizer.step(loss_fn, batch)
        return flat(model)

    assert torch.allclose(trained(change), trained(lambda optimizer: None), rtol=0, atol=1e-12)


def test_a_parameter_that_is_not_trained_any_more_is_left_out() -> None:
    model = square_mlp()
    optimizer = sampa.SAMPa(SGD(model.parameters(), lr=0.1), seed=0)
    loss_fn = cross_entropy_of(model)
    optimizer.step(loss_fn, BATCHES[0])
    left_out = optimizer.param_groups[0]["params"].pop(0)
    before = left_out.detach().clone()
    optimizer.step(loss_fn, BATCHES[1])
    assert torch.equal(left_out, before)
