"""Settings in which a variant becomes SAM, the base optimizer, or another known method.

Zero tolerance wherever the arithmetic is the same. `ROUNDING` is for formulas that write the same
number differently: float64, weights of size 1, six updates of a few operations each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sampa
from sampa.methods.sam import SAMMethod
from sampa.pieces.geometry import every_parameter
from tests.problems import BASES, flat
from tests.variants import (
    BATCHES,
    assert_same,
    gradient_at,
    normalized_mlp,
    nothing,
    run,
    training_loss,
)

ROUNDING = 1e-12
RHO = 0.3
Make = Callable[..., sampa.SharpnessAware]


def unscaled_asam(base: torch.optim.Optimizer, **options: Any) -> sampa.SharpnessAware:
    return sampa.SAM(base, geometry=sampa.Adaptive(select=nothing), **options)


def climbing_the_training_loss(
    base: torch.optim.Optimizer, rho: float, **options: Any
) -> sampa.SharpnessAware:
    return sampa.SharpnessAware(base, SAMMethod(rho, ascent_loss=training_loss), **options)


# ---- without a radius: the base optimizer --------------------------------------------------------

WITHOUT_RADIUS: dict[str, Make] = {
    "asam": partial(sampa.ASAM, rho=0.0),
    "sam-on": partial(sampa.SAMON, rho=0.0),
    "vasso": partial(sampa.VaSSO, rho=0.0),
    "bisam": partial(sampa.BiSAM, rho=0.0),
    "looksam": partial(sampa.LookSAM, rho=0.0, k=2),
    "ae-sam": partial(sampa.AESAM, rho=0.0),
    "esam tensors": partial(sampa.ESAM, rho=0.0),
    "esam elements": partial(sampa.ESAM, rho=0.0, swp="element"),
    "rst": partial(sampa.RST, rho=0.0, p=0.5),
    "ssam-f": partial(sampa.SparseSAM, rho=0.0),
    "ssam-d": partial(sampa.SparseSAM, rho=0.0, mask="dynamic"),
    "gsam": partial(sampa.GSAM, rho=0.0, alpha=0.4),
    "friendly-sam": partial(sampa.FriendlySAM, rho=0.0),
    "momentum-sam": partial(sampa.MomentumSAM, rho=0.0),
    "fisher-sam": partial(sampa.FisherSAM, gamma=0.0),
    "wsam decoupled": partial(sampa.WSAM, rho=0.0),
    "async-sam": partial(sampa.AsyncSAM, rho=0.0),
    "multi-step-sam": partial(sampa.MultiStepSAM, rho=0.0),
}

# These add up the same gradient from parts.
WITHOUT_RADIUS_ROUNDED: dict[str, Make] = {
    "msam": partial(sampa.MicroBatchSAM, rho=0.0, num_shards=2),
    "penalty": partial(sampa.GradNormPenalty, rho=0.0),
    "g-rst": partial(sampa.RST, rho=0.0, gamma=2.0),
    "wsam coupled": partial(sampa.WSAM, rho=0.0, decouple=False),
}

COMPOSED = [name for name in sampa.METHODS if name.startswith("sampa")]


@pytest.mark.parametrize("base", ["sgd-momentum", "adamw"])
@pytest.mark.parametrize("name", WITHOUT_RADIUS)
def test_without_radius_a_variant_is_the_base_optimizer(name: str, base: str) -> None:
    assert_same(run(WITHOUT_RADIUS[name], base=base), run(sampa.Base, base=base))


@pytest.mark.parametrize("name", WITHOUT_RADIUS_ROUNDED)
def test_without_radius_a_mixing_method_is_the_base_optimizer_up_to_rounding(name: str) -> None:
    assert_same(run(WITHOUT_RADIUS_ROUNDED[name]), run(sampa.Base), atol=ROUNDING)


def test_looksam_without_radius_is_the_base_optimizer_in_single_precision() -> None:
    """Rounding leaves g_v near 1e-7 ‖g‖; divided by its norm it would add a full α ‖g‖."""
    single = [(x.float(), y, index) for x, y, index in BATCHES]
    net = lambda: normalized_mlp().float()  # noqa: E731
    looksam = run(sampa.LookSAM, single, net=net, rho=0.0, k=2)
    assert_same(looksam, run(sampa.Base, single, net=net))


@pytest.mark.parametrize("name", COMPOSED)
def test_without_radius_and_lam_zero_a_composition_is_the_base_on_the_held_batch(name: str) -> None:
    make = partial(sampa.METHODS[name], rho=0.0, lam=0.0)
    assert_same(run(make), run(sampa.Base, BATCHES[:-1]))


# ---- switched off: SAM ---------------------------------------------------------------------------

SAME_AS_SAM: dict[str, Make] = {
    "looksam k=1": partial(sampa.LookSAM, k=1),
    "msam with one shard": partial(sampa.MicroBatchSAM, num_shards=1),
    "msam with large micro-batches": partial(sampa.MicroBatchSAM, micro_batch_size=6),
    "vasso theta=1": partial(sampa.VaSSO, theta=1.0),
    "ssam-f s=0": partial(sampa.SparseSAM, sparsity=0.0),
    "ssam-d s=0": partial(sampa.SparseSAM, sparsity=0.0, mask="dynamic"),
    "esam tensors beta=gamma=1": partial(sampa.ESAM, beta=1.0, gamma=1.0),
    "esam elements beta=gamma=1": partial(sampa.ESAM, beta=1.0, gamma=1.0, swp="element"),
    "rst p=1": partial(sampa.RST, p=1.0),
    "g-rst p=gamma=1": partial(sampa.RST, p=1.0, gamma=1.0),
    "ae-sam always": partial(sampa.AESAM, lambda1=-1e9, lambda2=-1e9, total_steps=4),
    "gsam alpha=0": partial(sampa.GSAM, alpha=0.0),
    "friendly-sam sigma=0": partial(sampa.FriendlySAM, sigma=0.0),
    "wsam coupled gamma=0.5": partial(sampa.WSAM, gamma=0.5, decouple=False),
    "penalty alpha=1": partial(sampa.GradNormPenalty, alpha=1.0),
    "sam-on everywhere": partial(sampa.SAMON, select=every_parameter),
    "asam T=1": unscaled_asam,
    "bisam on the training loss": climbing_the_training_loss,
    "async-sam tau=0": partial(sampa.AsyncSAM, tau=0),
}


@pytest.mark.parametrize("base", ["sgd-momentum", "adamw"])
@pytest.mark.parametrize("name", SAME_AS_SAM)
def test_a_variant_switched_off_is_sam(name: str, base: str) -> None:
    actual = run(partial(SAME_AS_SAM[name], rho=RHO), base=base)
    assert_same(actual, run(sampa.SAM, base=base, rho=RHO))


def test_fisher_sam_with_eta_zero_is_sam() -> None:
    assert_same(run(sampa.FisherSAM, gamma=RHO, eta=0.0), run(sampa.SAM, rho=RHO))


@pytest.mark.parametrize("project", [False, True])
def test_one_ascent_step_is_sam_up_to_rounding(project: bool) -> None:
    """ρ (g / ‖g‖) here, (ρ / ‖g‖) g there."""
    actual = run(sampa.MultiStepSAM, rho=RHO, steps=1, project=project)
    assert_same(actual, run(sampa.SAM, rho=RHO), atol=ROUNDING)


def test_msam_with_identical_shards_is_sam_up_to_rounding() -> None:
    """The mean over a batch that says everything twice is the mean over its half."""
    twice = [(torch.cat([x, x]), torch.cat([y, y]), torch.cat([i, i])) for x, y, i in BATCHES]
    actual = run(sampa.MicroBatchSAM, twice, rho=RHO, num_shards=2)
    assert_same(actual, run(sampa.SAM, rho=RHO), atol=ROUNDING)


@pytest.mark.parametrize("alpha", [0.01, 0.4, 3.0])
def test_gsam_is_sam_on_an_isotropic_quadratic(alpha: float) -> None:
    """g is parallel to g̃ there: the orthogonal part is zero up to rounding, and left out."""

    def sum_of_squares(model: nn.Module) -> Tensor:
        return torch.stack([p.square().sum() for p in model.parameters()]).sum()

    def ends(make: Make, **settings: Any) -> Tensor:
        model = normalized_mlp()
        optimizer = make(BASES["sgd-momentum"](model.parameters()), rho=RHO, **settings)
        for _ in range(5):
            optimizer.step(lambda _: 1.7 * sum_of_squares(model), 0)
        return flat(model)

    assert torch.equal(ends(sampa.GSAM, alpha=alpha), ends(sampa.SAM))


# ---- switched off: the base optimizer ------------------------------------------------------------

SAME_AS_BASE: dict[str, Make] = {
    "rst p=0": partial(sampa.RST, rho=RHO, p=0.0),
    "ae-sam never": partial(sampa.AESAM, rho=RHO, lambda1=1e9, lambda2=1e9, total_steps=4),
    "ssam-f s=1": partial(sampa.SparseSAM, rho=RHO, sparsity=1.0),
    "ssam-d s=1": partial(sampa.SparseSAM, rho=RHO, sparsity=1.0, mask="dynamic"),
    "wsam gamma=0": partial(sampa.WSAM, rho=RHO, gamma=0.0),
    "wsam coupled gamma=0": partial(sampa.WSAM, rho=RHO, gamma=0.0, decouple=False),
    "penalty alpha=0": partial(sampa.GradNormPenalty, rho=RHO, alpha=0.0),
    "saf lam=0": partial(sampa.SAF, lam=0.0, start_epoch=0, gap=1),
    "mesa lam=0": partial(sampa.MESA, lam=0.0, start_epoch=0),
    "saf before its first epoch": partial(sampa.SAF, start_epoch=2, gap=1),
    "mesa before its first epoch": partial(sampa.MESA, start_epoch=2),
    "saf after its last epoch": partial(sampa.SAF, start_epoch=0, end_epoch=1, gap=1),
    "mesa after its last epoch": partial(sampa.MESA, start_epoch=0, end_epoch=1),
}


@pytest.mark.parametrize("name", SAME_AS_BASE)
def test_a_variant_that_never_acts_is_the_base_optimizer(name: str) -> None:
    assert_same(run(SAME_AS_BASE[name], epochs=3), run(sampa.Base, epochs=3))


def test_looksam_that_reuses_nothing_alternates_sam_and_base() -> None:
    coins = [True, False] * 3
    actual = run(sampa.LookSAM, rho=RHO, k=2, alpha=0.0)
    assert_same(actual, run(sampa.RST, rho=RHO, coins=coins))


# ---- first updates -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        partial(sampa.VaSSO, theta=0.1),
        partial(sampa.FriendlySAM, sigma=0.7, lmbda=0.2),
        partial(sampa.LookSAM, k=7, alpha=0.9),
    ],
    ids=["vasso", "friendly-sam", "looksam"],
)
def test_first_update_is_sams(make: Make) -> None:
    assert_same(run(make, BATCHES[:1], rho=RHO), run(sampa.SAM, BATCHES[:1], rho=RHO))


@pytest.mark.parametrize("make", [sampa.MomentumSAM, sampa.AsyncSAM])
def test_first_update_of_a_method_with_an_older_direction_is_the_bases(make: Make) -> None:
    assert_same(run(make, BATCHES[:1], rho=RHO), run(sampa.Base, BATCHES[:1]))


@pytest.mark.parametrize("base", ["sgd-momentum", "adamw"])
@pytest.mark.parametrize("make", [sampa.MomentumSAM, sampa.AsyncSAM])
def test_second_update_of_a_method_with_an_older_direction_is_perturbed(
    make: Make, base: str
) -> None:
    actual, plain = run(make, BATCHES[:2], base, rho=RHO), run(sampa.Base, BATCHES[:2], base)
    assert not torch.allclose(actual[1], plain[1], atol=1e-4)


# ---- other methods -------------------------------------------------------------------------------


def test_momentum_sam_with_the_step_as_radius_is_nesterovs_lookahead() -> None:
    """ρ_t = η μ ‖v_t‖:  v ← μ v + ∇f(x − η μ v),  x ← x − η v."""
    lr, mu = 0.1, 0.9
    x, v = flat(normalized_mlp()), torch.zeros_like(flat(normalized_mlp()))
    expected: list[Tensor] = []
    for batch in BATCHES:
        v = mu * v + gradient_at(x - lr * mu * v, batch)
        x = x - lr * v
        expected.append(x)

    def make(base: torch.optim.Optimizer, **options: Any) -> sampa.SharpnessAware:
        def step_length(t: int) -> float:
            buffers = [s["momentum_buffer"].flatten() for s in base.state.values()]
            return lr * mu * torch.cat(buffers).norm().item() if buffers else 0.0

        return sampa.MomentumSAM(base, rho=step_length, perturb_eps=0.0, **options)

    without_decay = partial(torch.optim.SGD, lr=lr, momentum=mu)
    assert_same(run(make, base=without_decay), expected, atol=ROUNDING)


@pytest.mark.parametrize("gamma", [0.2, 0.9])
def test_wsam_decoupled_is_coupled_on_plain_sgd(gamma: float) -> None:
    decoupled = run(sampa.WSAM, base="sgd", rho=RHO, gamma=gamma)
    coupled = run(sampa.WSAM, base="sgd", rho=RHO, gamma=gamma, decouple=False)
    assert_same(decoupled, coupled, atol=ROUNDING)


def test_wsam_decoupled_keeps_the_sharpness_out_of_the_momentum() -> None:
    decoupled = run(sampa.WSAM, rho=RHO)
    coupled = run(sampa.WSAM, rho=RHO, decouple=False)
    torch.testing.assert_close(decoupled[0], coupled[0], rtol=0, atol=ROUNDING)
    assert not torch.allclose(decoupled[1], coupled[1], atol=1e-3)
