"""The same gradients through kozistr/pytorch_optimizer: where the two agree, and where they do not.

Its global norm is summed in float32 (6e-8 relative), so that float64 paths agree to `CLOSE` only.
Where the two differ, the test shows the difference and says which of them follows the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sampa
from tests.problems import Batch, cross_entropy_of, flat, tiny_mlp, trajectory, vector_batches

peers = pytest.importorskip(
    "pytorch_optimizer", reason="pytorch_optimizer is not installed: pip install pytorch_optimizer"
)

CLOSE = 1e-7
RHO, LR = 0.3, 0.1
BATCHES = vector_batches(8)
SGD: dict[str, Any] = {"lr": LR, "momentum": 0.9, "weight_decay": 0.01}
ADAMW: dict[str, Any] = {"lr": 0.02, "weight_decay": 0.1}
BASES: dict[str, tuple[Callable[..., torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, SGD),
    "adamw": (torch.optim.AdamW, ADAMW),
}
Net = Callable[[], nn.Module]
some_bases = pytest.mark.parametrize("base", BASES)


def ours(
    make: Callable[..., sampa.SharpnessAware],
    base: str = "sgd",
    net: Net = tiny_mlp,
    batches: list[Batch] = BATCHES,
) -> list[Tensor]:
    model = net()
    optimizer_class, options = BASES[base]
    return trajectory(
        make(optimizer_class(model.parameters(), **options)),
        model,
        batches,
        cross_entropy_of(model),
    )


def theirs(
    make: Callable[..., Any],
    base: str = "sgd",
    net: Net = tiny_mlp,
    batches: list[Batch] = BATCHES,
) -> list[Tensor]:
    """For optimizers that want the gradient before `step`, and a closure for the second one."""
    model = net()
    optimizer_class, options = BASES[base]
    optimizer = make(model.parameters(), optimizer_class, **options)
    visited: list[Tensor] = []
    for batch in batches:
        closure = backward_of(model, optimizer, batch)
        closure()
        optimizer.step(closure)
        visited.append(flat(model))
    return visited


def backward_of(model: nn.Module, optimizer: Any, batch: Batch) -> Callable[[], Tensor]:
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy_of(model)(batch)
        loss.backward()
        return loss

    return closure


def distance(a: list[Tensor], b: list[Tensor]) -> float:
    """The largest difference of a weight at any update."""
    return max((x - y).abs().max().item() for x, y in zip(a, b, strict=True))


# ---- SAM and ASAM --------------------------------------------------------------------------------


@some_bases
def test_sam_agrees(base: str) -> None:
    assert distance(ours(partial(sampa.SAM, rho=RHO), base), theirs(peer_sam, base)) < CLOSE


def peer_sam(*args: Any, **options: Any) -> Any:
    return peers.SAM(*args, rho=RHO, **options)


def peer_adaptive(*args: Any, **options: Any) -> Any:
    return peers.SAM(*args, rho=RHO, adaptive=True, **options)


@some_bases
def test_asam_agrees_in_the_peers_reading(base: str) -> None:
    """T = |x| for every tensor: `normalize_bias=True, eta=0` here."""
    asam = partial(sampa.ASAM, rho=RHO, eta=0.0, normalize_bias=True)
    assert distance(ours(asam, base), theirs(peer_adaptive, base)) < CLOSE


def test_asam_disagrees_with_the_authors_in_the_peers_reading() -> None:
    """The authors' code has T = |x| + η, and T = 1 on biases. Ours is theirs by default.

    In the peer's, a bias that starts at zero is never perturbed.
    """
    assert distance(ours(partial(sampa.ASAM, rho=RHO)), theirs(peer_adaptive)) > 1e-3


# ---- GSAM ----------------------------------------------------------------------------------------


def peer_gsam(rho_min: float, decay: float) -> list[Tensor]:
    """With a learning rate that is multiplied by `decay` after each update."""
    model = tiny_mlp()
    base = torch.optim.SGD(model.parameters(), **SGD)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(base, decay)
    radius = peers.ProportionScheduler(scheduler, LR, 0.0, RHO, rho_min)
    optimizer = peers.GSAM(model.parameters(), base, model, radius, alpha=0.4)
    visited = []
    for x, y in BATCHES:
        optimizer.set_closure(nn.functional.cross_entropy, x, y)
        optimizer.step()
        scheduler.step()
        optimizer.update_rho_t()
        visited.append(flat(model))
    return visited


def our_gsam(decay: float, **settings: Any) -> list[Tensor]:
    model = tiny_mlp()
    optimizer = sampa.GSAM(torch.optim.SGD(model.parameters(), **SGD), RHO, alpha=0.4, **settings)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, decay)
    visited = []
    for batch in BATCHES:
        optimizer.step(cross_entropy_of(model), batch)
        scheduler.step()
        visited.append(flat(model))
    return visited


def test_gsam_agrees_at_a_constant_radius() -> None:
    assert distance(our_gsam(1.0), peer_gsam(RHO, 1.0)) < CLOSE


def test_gsam_agrees_while_radius_and_rate_fall() -> None:
    assert distance(our_gsam(0.8, rho_min=0.05, lr_max=LR), peer_gsam(0.05, 0.8)) < CLOSE


# ---- WSAM ----------------------------------------------------------------------------------------


def peer_wsam(
    base: str, decouple: bool, max_norm: float | None = None, batches: list[Batch] = BATCHES
) -> list[Tensor]:
    model = tiny_mlp()
    optimizer_class, options = BASES[base]
    optimizer = peers.WSAM(
        model,
        model.parameters(),
        optimizer_class,
        rho=RHO,
        gamma=0.8,
        decouple=decouple,
        max_norm=max_norm,
        **options,
    )
    visited = []
    for batch in batches:
        optimizer.step(backward_of(model, optimizer, batch))
        visited.append(flat(model))
    return visited


@some_bases
@pytest.mark.parametrize("decouple", [True, False])
def test_wsam_agrees(base: str, decouple: bool) -> None:
    wsam = partial(sampa.WSAM, rho=RHO, gamma=0.8, decouple=decouple)
    # w = 4 multiplies the difference of two gradients, and with it the norm's rounding.
    assert distance(ours(wsam, base), peer_wsam(base, decouple)) < 10 * CLOSE


def test_wsam_disagrees_in_clipping() -> None:
    """The peer clips g̃ alone, after g was stored: what it hands to the base is not clipped.

    The authors clip both. Here `max_norm` bounds the gradient handed to the base optimizer, for
    every method: with plain SGD and γ = 0 the step is no longer than η · max_norm.
    """
    max_norm = 1e-3
    start, model = flat(tiny_mlp()), tiny_mlp()
    base = torch.optim.SGD(model.parameters(), lr=LR)
    sampa.WSAM(base, rho=RHO, gamma=0.0, max_norm=max_norm).step(
        cross_entropy_of(model), BATCHES[0]
    )
    assert (flat(model) - start).norm().item() == pytest.approx(LR * max_norm, rel=1e-9)

    model = tiny_mlp()
    options = {"rho": RHO, "gamma": 0.0, "max_norm": max_norm, "lr": LR}
    optimizer = peers.WSAM(model, model.parameters(), torch.optim.SGD, **options)
    optimizer.step(backward_of(model, optimizer, BATCHES[0]))
    assert (flat(model) - start).norm().item() > 10 * LR * max_norm


# ---- LookSAM -------------------------------------------------------------------------------------


def one_tensor() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 3, bias=False).double()


def peer_looksam(rho: float = RHO) -> Callable[..., Any]:
    return partial(_looksam, rho)


def _looksam(rho: float, *args: Any, **options: Any) -> Any:
    return peers.LookSAM(*args, rho=rho, k=3, alpha=0.7, **options)


@some_bases
def test_looksam_agrees_on_a_single_tensor(base: str) -> None:
    """The peer adds 1e-8 to ‖g_v‖, here of size 1e-2: 1e-6 relative in the reused part."""
    looksam = partial(sampa.LookSAM, rho=RHO, k=3, alpha=0.7)
    actual, expected = ours(looksam, base, one_tensor), theirs(peer_looksam(), base, one_tensor)
    assert distance(actual, expected) < 10 * CLOSE


def test_looksam_disagrees_on_several_tensors() -> None:
    """The peer projects and rescales each tensor by itself; the paper has one g and one g_v."""
    looksam = partial(sampa.LookSAM, rho=RHO, k=3, alpha=0.7)
    actual, expected = ours(looksam), theirs(peer_looksam())
    assert distance(actual[:1], expected[:1]) < CLOSE  # a SAM step
    assert distance(actual[1:], expected[1:]) > 1e-3


@some_bases
def test_looksam_per_tensor_agrees_on_several_tensors(base: str) -> None:
    looksam = partial(sampa.LookSAM, rho=RHO, k=3, alpha=0.7, per_tensor=True)
    assert distance(ours(looksam, base), theirs(peer_looksam(), base)) < 10 * CLOSE


def test_looksam_without_radius_is_the_base_optimizer_here_alone() -> None:
    """g̃ = g leaves g_v to rounding. In single precision the peer blows it up; here it is zero."""
    single = [(x.float(), y) for x, y in BATCHES]
    net = partial(tiny_mlp, dtype=torch.float32)
    plain = ours(sampa.Base, net=net, batches=single)
    looksam = partial(sampa.LookSAM, rho=0.0, k=3, alpha=0.7)
    assert distance(ours(looksam, net=net, batches=single), plain) == 0.0
    assert distance(theirs(peer_looksam(0.0), net=net, batches=single), plain) > 1e-3


# ---- Friendly-SAM --------------------------------------------------------------------------------


def peer_friendly(*args: Any, **options: Any) -> Any:
    return peers.FriendlySAM(*args, rho=RHO, sigma=0.8, lmbda=0.6, **options)


@some_bases
def test_friendly_sam_agrees(base: str) -> None:
    """Both average the raw gradient; averaging the difference is a known trap."""
    friendly = partial(sampa.FriendlySAM, rho=RHO, sigma=0.8, lmbda=0.6)
    assert distance(ours(friendly, base), theirs(peer_friendly, base)) < CLOSE
