"""Bad input: each mistake has an error that says name, rule, value and what to do."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sampa
from tests.problems import cross_entropy_of, flat, sgd, tiny_mlp, vector_batches

BATCH = vector_batches(1)[0]
WITH_RADIUS: list[Callable[..., sampa.SharpnessAware]] = [
    sampa.SAM,
    sampa.SAMdb,
    sampa.SAMPa,
    sampa.RandSAM,
    sampa.OptSAM,
]


# ---- hyper-parameters ----------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [-0.1, math.nan, math.inf, "0.1"])
@pytest.mark.parametrize("make", WITH_RADIUS)
def test_a_radius_must_be_finite_and_not_negative(
    make: Callable[..., sampa.SharpnessAware], rho: Any
) -> None:
    message = re.escape(f"rho must be finite and >= 0, got {rho!r}")
    with pytest.raises(ValueError, match=message):
        make(sgd(tiny_mlp()), rho=rho)


def test_a_groups_radius_is_checked_too() -> None:
    groups = [{"params": list(tiny_mlp().parameters()), "rho": -1.0}]
    base = torch.optim.SGD(groups, lr=0.1)
    with pytest.raises(ValueError, match=r"rho must be finite and >= 0, got -1\.0"):
        sampa.SAM(base)


def test_a_function_for_the_radius_is_checked_at_the_start() -> None:
    with pytest.raises(ValueError, match=r"rho\(0\) must be finite and >= 0, got -1\.0"):
        sampa.SAM(sgd(tiny_mlp()), rho=lambda t: t - 1.0)


def test_a_function_for_the_radius_is_checked_at_every_update() -> None:
    model = tiny_mlp()
    optimizer = sampa.SAM(sgd(model), rho=lambda t: 1.0 - 2 * t)
    optimizer.step(cross_entropy_of(model), BATCH)
    before = flat(model)
    with pytest.raises(ValueError, match=r"rho\(1\) must be finite and >= 0, got -1\.0"):
        optimizer.step(cross_entropy_of(model), BATCH)
    assert torch.equal(flat(model), before)


WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"lam": -0.1}, "lam must be in [0, 1], got -0.1"),
    ({"lam": 1.5}, "lam must be in [0, 1], got 1.5"),
    ({"lam": math.nan}, "lam must be in [0, 1], got nan"),
    ({"bootstrap": "none"}, "bootstrap must be one of 'paper', 'script', got 'none'"),
    ({"bn_pass": "both"}, "bn_pass must be one of 'lookahead', 'perturbed', got 'both'"),
    ({"accumulate": 0}, "accumulate must be >= 1, got 0"),
    ({"max_norm": 0.0}, "max_norm must be > 0 or None, got 0.0"),
    ({"max_norm": math.nan}, "max_norm must be > 0 or None, got nan"),
    ({"perturb_eps": -1e-12}, "perturb_eps must be >= 0 and finite, got -1e-12"),
    ({"perturb_eps": math.nan}, "perturb_eps must be >= 0 and finite, got nan"),
    ({"max_skips": 0}, "max_skips must be >= 1, got 0"),
]


@pytest.mark.parametrize(("options", "message"), WRONG_OPTIONS)
def test_an_option_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        sampa.SAMPa(sgd(tiny_mlp()), **options)


def test_the_batch_that_sam_db_perturbs_on_is_checked() -> None:
    message = "perturb_on must be one of 'next', 'previous', got 'both'"
    with pytest.raises(ValueError, match=message):
        sampa.SAMdb(sgd(tiny_mlp()), perturb_on="both")  # type: ignore[arg-type]


# ---- the base optimizer --------------------------------------------------------------------------


def test_a_model_in_place_of_the_base_is_refused() -> None:
    message = r"base must be a torch optimizer, got Sequential; build it first: sampa\.SAM\(torch"
    with pytest.raises(TypeError, match=message):
        sampa.SAM(tiny_mlp())  # type: ignore[arg-type]


def test_wrapping_twice_is_refused() -> None:
    optimizer = sampa.SAM(sgd(tiny_mlp()))
    with pytest.raises(TypeError, match="base must be a plain torch optimizer, got a sampa"):
        sampa.SAMPa(optimizer)


def test_lbfgs_is_refused() -> None:
    base = torch.optim.LBFGS(tiny_mlp().parameters())
    with pytest.raises(TypeError, match="got LBFGS, which evaluates the loss itself"):
        sampa.SAM(base)


def test_an_optimizer_without_parameters_is_refused() -> None:
    base = torch.optim.SGD([{"params": []}], lr=0.1)
    with pytest.raises(ValueError, match="base must have at least one parameter, got none"):
        sampa.SAM(base)


# ---- the call of step ----------------------------------------------------------------------------


def test_a_batch_that_is_none_is_refused() -> None:
    optimizer = sampa.SAM(sgd(tiny_mlp()))
    with pytest.raises(RuntimeError, match=r"(?s)step needs batch:.*batch=None"):
        optimizer.step(lambda batch: torch.zeros(()), None)


def test_a_loss_in_place_of_loss_fn_is_refused() -> None:
    model = tiny_mlp()
    loss = cross_entropy_of(model)(BATCH)
    with pytest.raises(TypeError, match="loss_fn must be callable, got Tensor"):
        sampa.SAM(sgd(model)).step(loss, BATCH)  # type: ignore[arg-type]


def outputs(model: nn.Module) -> Tensor:
    return model(BATCH[0])


WRONG_LOSSES: list[tuple[str, Callable[[nn.Module], Any], type[Exception], str]] = [
    ("a number", lambda m: outputs(m).sum().item(), TypeError, r"got float; .*without \.item"),
    ("a tuple", lambda m: (outputs(m).sum(), 1), TypeError, "got tuple; .*without a tuple"),
    ("nothing", lambda m: None, TypeError, "as a tensor.*got NoneType"),
    ("a vector", lambda m: outputs(m).sum(1), ValueError, r"a scalar, got shape \(6,\); average"),
    ("a matrix", outputs, ValueError, r"a scalar, got shape \(6, 3\); average"),
    ("detached", lambda m: outputs(m).sum().detach(), ValueError, "with its graph.*do not detach"),
]


@pytest.mark.parametrize(
    ("output", "error", "message"), [w[1:] for w in WRONG_LOSSES], ids=[w[0] for w in WRONG_LOSSES]
)
def test_a_loss_that_cannot_be_differentiated_is_refused(
    output: Callable[[nn.Module], Any], error: type[Exception], message: str
) -> None:
    model = tiny_mlp()
    before = flat(model)
    with pytest.raises(error, match=message):
        sampa.SAM(sgd(model)).step(lambda batch: output(model), BATCH)
    assert torch.equal(flat(model), before)


def test_a_loss_of_shape_one_is_accepted() -> None:
    model = tiny_mlp()
    loss = sampa.SAM(sgd(model)).step(lambda b: cross_entropy_of(model)(b).reshape(1), BATCH)
    assert loss.shape == ()


def test_a_loss_under_no_grad_around_step_still_has_its_graph() -> None:
    model, twin = tiny_mlp(), tiny_mlp()
    with torch.no_grad():
        sampa.SAM(sgd(model)).step(cross_entropy_of(model), BATCH)
    sampa.SAM(sgd(twin)).step(cross_entropy_of(twin), BATCH)
    assert torch.equal(flat(model), flat(twin))


def test_a_sparse_gradient_is_refused() -> None:
    model = nn.Embedding(5, 3, sparse=True)
    optimizer = sampa.SAM(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(RuntimeError, match=r"must be dense, got a sparse one.*sparse=False"):
        optimizer.step(lambda batch: model(batch).square().mean(), torch.tensor([1, 2]))


@pytest.mark.parametrize("other", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("make", [sampa.Base, sampa.OptGD, *WITH_RADIUS])
def test_weights_of_two_precisions_train_together(
    make: Callable[..., sampa.SharpnessAware], other: torch.dtype
) -> None:
    weights = [nn.Parameter(torch.ones(3, dtype=t)) for t in (torch.float32, other)]
    optimizer = make(torch.optim.SGD(weights, lr=0.2))

    def loss_fn(x: Tensor) -> Tensor:
        return torch.stack([(x * p).double().square().mean() for p in weights]).sum()

    losses = [optimizer.step(loss_fn, torch.ones(3)).item() for _ in range(10)]
    assert losses[-1] < 0.5 * losses[0]
    assert [p.dtype for p in weights] == [torch.float32, other]


# ---- started by torchrun -------------------------------------------------------------------------


def test_several_processes_without_an_executor_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    message = r"2 processes were started but .* no executor.*executor = sampa\.distribute\(model\)"
    with pytest.raises(RuntimeError, match=message):
        sampa.SAM(sgd(tiny_mlp()))


def test_several_processes_may_each_train_alone_if_they_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    model = tiny_mlp()
    optimizer = sampa.SAM(sgd(model), executor=sampa.Serial(model))
    assert optimizer.executor.mesh is None
