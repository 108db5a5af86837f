"""Peek with every optimizer of pytorch_optimizer and schedulefree, and with wrappers around others.

Their state is anything: deques, arrays, objects, counters in attributes, random numbers. A
lookahead is compared with a step of another optimizer that was built and used in the same way, so
that no copy of an optimizer is trusted.
"""

from __future__ import annotations

import inspect
import random
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import StepLR

import sampa
from sampa.execution.lookahead import lookahead, set_gradients
from sampa.vectors.vector import Vector
from tests.problems import same_bits

peers = pytest.importorskip(
    "pytorch_optimizer", reason="pytorch_optimizer is not installed: pip install pytorch_optimizer"
)
schedulefree = pytest.importorskip(
    "schedulefree", reason="schedulefree is not installed: pip install schedulefree"
)

STEPS = 6
COMPARED = [0, 1, 5]  # without state, with new state, after something that is done every 5 steps
Build = Callable[[nn.Module], Optimizer]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 6), nn.Linear(6, 2))


def sgd(model: nn.Module) -> Optimizer:
    return SGD(model.parameters(), lr=0.1, momentum=0.9)


def adamw(model: nn.Module) -> Optimizer:
    return AdamW(model.parameters(), lr=0.01)


def plain(optimizer: Any, **options: Any) -> Build:
    def build(model: nn.Module) -> Optimizer:
        return in_training(optimizer(model.parameters(), **options))

    return build


def around(wrapper: Any, inner: Build, **options: Any) -> Build:
    return lambda model: in_training(wrapper(inner(model), **options))


def matrices_apart(optimizer: Any) -> Build:
    def build(model: nn.Module) -> Optimizer:
        parameters = list(model.parameters())
        return optimizer(
            [
                {"params": [p for p in parameters if p.ndim > 1], "use_muon": True},
                {"params": [p for p in parameters if p.ndim <= 1], "use_muon": False},
            ]
        )

    return build


def in_training(optimizer: Any) -> Any:
    if hasattr(optimizer, "train"):
        optimizer.train()
    return optimizer


MUONS = ["AdaGO", "AdaMuon", "Muon", "MuonClip", "NorMuon"]
BUILT: dict[str, Build] = {
    **{name: matrices_apart(getattr(peers, name)) for name in MUONS},
    "AdamMini": lambda model: peers.AdamMini(model),
    "DistributedMuon": matrices_apart(peers.DistributedMuon),
    "Lookahead": around(peers.Lookahead, sgd, k=2),
    "OrthoGrad": around(peers.OrthoGrad, adamw),
    "PCGrad": around(peers.PCGrad, sgd),
    "Ranger21": plain(peers.Ranger21, num_iterations=10),
    "SGD": plain(peers.SGD, lr=0.1, momentum=0.9),
    "ScheduleFreeWrapper": around(peers.ScheduleFreeWrapper, sgd),
    "SpectralSphere": lambda model: peers.SpectralSphere(
        [p for p in model.parameters() if p.ndim == 2]
    ),
    "TRAC": around(peers.TRAC, adamw),
    "schedulefree.AdamWScheduleFree foreach": plain(schedulefree.AdamWScheduleFree, foreach=True),
    "schedulefree.SGDScheduleFreeReference": plain(schedulefree.SGDScheduleFreeReference, lr=0.1),
}
"""Those that need more than parameters."""

REFUSED: dict[str, tuple[Build, str]] = {
    "AdaHessian": (plain(peers.AdaHessian), "second derivatives"),
    "AdaLOMO": (lambda model: peers.AdaLOMO(model), "during backward"),
    "AliG": (plain(peers.AliG), "the value of the loss"),
    "BSAM": (plain(peers.BSAM, num_data=4), "two gradients"),
    "FriendlySAM": (plain(peers.FriendlySAM, base_optimizer=SGD, lr=0.1), "two gradients"),
    "GSAM": (
        lambda model: peers.GSAM(
            model.parameters(),
            base_optimizer=sgd(model),
            model=model,
            rho_scheduler=peers.ProportionScheduler(StepLR(sgd(model), 1), 0.1, 0.0),
        ),
        "two gradients",
    ),
    "LBFGS": (plain(peers.LBFGS), "evaluates the loss itself"),
    "LOMO": (lambda model: peers.LOMO(model), "during backward"),
    "LookSAM": (plain(peers.LookSAM, base_optimizer=SGD, lr=0.1), "two gradients"),
    "SAM": (plain(peers.SAM, base_optimizer=SGD, lr=0.1), "two gradients"),
    "SafeFP16Optimizer": (around(peers.SafeFP16Optimizer, sgd), "pass the optimizer inside it"),
    "SophiaH": (plain(peers.SophiaH), "second derivatives"),
    "WSAM": (
        lambda model: peers.WSAM(model, model.parameters(), base_optimizer=SGD, lr=0.1),
        "two gradients",
    ),
    "schedulefree.AdamWScheduleFreeClosure": (
        plain(schedulefree.AdamWScheduleFreeClosure),
        "closure",
    ),
    "schedulefree.RAdamScheduleFreeClosure": (
        plain(schedulefree.RAdamScheduleFreeClosure),
        "closure",
    ),
    "schedulefree.SGDScheduleFreeClosure": (
        plain(schedulefree.SGDScheduleFreeClosure, lr=0.1),
        "closure",
    ),
    "schedulefree.ScheduleFreeWrapper": (
        around(schedulefree.ScheduleFreeWrapper, sgd),
        "does not subclass",
    ),
    "schedulefree.ScheduleFreeWrapperReference": (
        around(schedulefree.ScheduleFreeWrapperReference, sgd),
        "does not subclass",
    ),
}
"""Those that cannot step from one gradient, and a word of the reason."""

NOT_BUILT = {"DeMo": "needs einops, and a process group"}
"""Those that cannot be made here."""


def all_names() -> dict[str, Any]:
    """Every optimizer of the two packages."""
    found = {
        name: value
        for name, value in vars(peers).items()
        if inspect.isclass(value) and issubclass(value, Optimizer)
    }
    found |= {
        f"schedulefree.{name}": value
        for name, value in vars(schedulefree).items()
        if inspect.isclass(value)
    }
    return {k: v for k, v in sorted(found.items()) if v is not Optimizer and "Base" not in k}


TESTED: dict[str, Build] = {
    name: plain(value)
    for name, value in all_names().items()
    if name not in REFUSED and name not in NOT_BUILT
} | BUILT

REPRESENTATIVE = [
    "AdaShift",  # deques of tensors
    "AdamP",  # nothing but dictionaries of tensors
    "Kron",  # NumPy's generator, lists of tensors
    "Lookahead",  # an optimizer inside another
    "MADGRAD",  # entries of the state that belong to no parameter
    "Ranger21",  # counters and copies of weights in attributes
    "SPAM",  # an inner scheduler
    "ScalableShampoo",  # objects with tensors of their own
    "ScheduleFreeWrapper",  # state that several optimizers share
    "StableSPAM",  # counters in attributes
    "TRAC",
    "schedulefree.RAdamScheduleFree",  # counters in groups
]


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # Kron draws from it


def gradients(model: nn.Module, seed: int) -> Vector:
    generator = torch.Generator().manual_seed(seed)
    return Vector(torch.randn(p.shape, generator=generator) for p in model.parameters())


def values(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def update(base: Optimizer, model: nn.Module, g: Vector, i: int) -> list[Tensor]:
    seed_all(i)
    set_gradients(list(model.parameters()), g.clone())
    base.step()
    return values(model)


def used(build: Build, steps: int) -> tuple[nn.Module, Optimizer]:
    """A model and its optimizer after some steps."""
    model = net()
    seed_all(99)
    base = build(model)
    for i in range(steps):
        update(base, model, gradients(model, i), i)
    return model, base


def peek(base: Optimizer, model: nn.Module, g: Vector) -> list[Tensor]:
    before = values(model)
    with torch.no_grad():
        lookahead(base, restricted(g, base, model))(trained(base))
        visited = values(model)
        for p, value in zip(model.parameters(), before, strict=True):
            p.copy_(value)
    return visited


def trained(base: Optimizer) -> list[Tensor]:
    return [p for group in base.param_groups for p in group["params"]]


def restricted(g: Vector, base: Optimizer, model: nn.Module) -> Vector:
    """The gradient in the order of the optimizer's parameters."""
    of = {id(p): t for p, t in zip(model.parameters(), g, strict=True)}
    return Vector(of[id(p)] for p in trained(base))


def assert_exact(build: Build) -> None:
    model, base = used(build, 0)
    for i in range(STEPS):
        expected = None
        if i in COMPARED:
            other, its_base = used(build, i)
            expected = update(its_base, other, gradients(other, 100 + i), i)
        seed_all(i)
        visited = peek(base, model, gradients(model, 100 + i))
        assert expected is None or same_bits(visited, expected)
        # No seed in between: the real step must draw what the lookahead drew.
        set_gradients(list(model.parameters()), gradients(model, i).clone())
        base.step()
    other, its_base = used(build, STEPS)
    assert same_bits(values(model), values(other))
    assert kept(base, model) == kept(its_base, other)


def kept(base: Optimizer, model: nn.Module) -> list[str]:
    """All that an optimizer keeps, in words; the same for one that was used in the same way."""
    numbers = {id(p): f"parameter {i}" for i, p in enumerate(model.parameters())}
    seen: set[int] = set()

    def words(value: Any, name: str) -> Iterator[str]:
        if id(value) in numbers:
            yield f"{name} = {numbers[id(value)]}"
        elif isinstance(value, Tensor):
            yield f"{name} = {value.dtype} {value.tolist()}"
        elif isinstance(value, np.ndarray):
            yield f"{name} = {value.tolist()}"
        elif callable(value) or isinstance(value, torch.Generator):
            yield f"{name} is something to call"
        elif id(value) not in seen and (isinstance(value, dict) or hasattr(value, "__dict__")):
            seen.add(id(value))
            parts = value if isinstance(value, dict) else vars(value)
            for key, part in parts.items():
                known = numbers.get(id(key)) or numbers.get(key, key)  # Magma: keys are ids
                yield from words(part, f"{name}.{known}")
        elif isinstance(value, list | tuple | set | deque):
            yield f"{name} has {len(value)}"
            for i, part in enumerate(value):
                yield from words(part, f"{name}.{i}")
        elif isinstance(value, bool | int | float | str | None):
            yield f"{name} = {value!r}"

    return [word for word in words(base, "base") if "_hooks" not in word]


@contextmanager
def one_rank(name: str) -> Iterator[None]:
    """A process group, for the optimizer that cannot be made without one."""
    if name != "DistributedMuon":
        yield
        return
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        distributed.destroy_process_group()


@contextmanager
def quiet() -> Iterator[None]:
    """Their warnings and what they print are not ours."""
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", REPRESENTATIVE)
def test_a_lookahead_is_the_step_and_leaves_nothing_behind(name: str) -> None:
    with quiet():
        assert_exact(TESTED[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TESTED.keys() - set(REPRESENTATIVE)))
def test_a_lookahead_is_the_step_for_every_other_optimizer(name: str) -> None:
    with quiet(), one_rank(name):
        assert_exact(TESTED[name])


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_step_from_one_gradient_is_refused(name: str) -> None:
    build, reason = REFUSED[name]
    with quiet():
        base = build(net())
    with pytest.raises(TypeError, match=reason):
        sampa.SAMPa(base)
