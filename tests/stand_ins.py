"""Other libraries' formulas, written anew, where they cannot be installed beside this torch.

Each stand-in has the names that docs/coming-from.md calls, and does what the library's source does.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer


@contextmanager
def installed(**modules: dict[str, Any]) -> Iterator[None]:
    """Let `import` find modules (dots are double underscores) that have these names."""
    before = {}
    for name, contents in modules.items():
        name = name.replace("__", ".")
        module = ModuleType(name)
        vars(module).update(contents)
        before[name] = sys.modules.get(name)
        sys.modules[name] = module
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def _gradients(optimizer: Any) -> Iterator[tuple[Tensor, Tensor]]:
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                yield p, p.grad


# ---- davda54/sam -----------------------------------------------------------------------------


class Davda54SAM:
    """e = ρ T² g / (‖T g‖ + 1e-12), T = |w| if adaptive; the weights come back by copy."""

    def __init__(
        self,
        params: Iterable[Tensor],
        base_optimizer: Callable[..., Optimizer],
        rho: float = 0.05,
        adaptive: bool = False,
        **options: Any,
    ) -> None:
        self.base_optimizer = base_optimizer(params, **options)
        self.param_groups = self.base_optimizer.param_groups
        self._rho, self._adaptive = rho, adaptive
        self._old: dict[Tensor, Tensor] = {}

    @torch.no_grad()
    def first_step(self, zero_grad: bool = False) -> None:
        found = [(p, p.abs() if self._adaptive else 1.0, g) for p, g in _gradients(self)]
        norm = torch.stack([(t * g).norm() for _, t, g in found]).norm()
        for p, t, g in found:
            self._old[p] = p.clone()
            p.add_(t**2 * g * (self._rho / (norm + 1e-12)))
        self._zeroed(zero_grad)

    @torch.no_grad()
    def second_step(self, zero_grad: bool = False) -> None:
        for p, _ in _gradients(self):
            p.copy_(self._old[p])
        self.base_optimizer.step()
        self._zeroed(zero_grad)

    def _zeroed(self, wanted: bool) -> None:
        if wanted:
            self.base_optimizer.zero_grad()


def _set_momentum(model: nn.Module, momentum: float) -> None:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.momentum = momentum


DAVDA54: dict[str, dict[str, Any]] = {
    "sam": {"SAM": Davda54SAM},
    "utility": {},
    "utility__bypass_bn": {
        "disable_running_stats": lambda model: _set_momentum(model, 0.0),
        "enable_running_stats": lambda model: _set_momentum(model, 0.1),
    },
}


# ---- Composer --------------------------------------------------------------------------------


class ComposerSAM:
    """At every `interval`-th step e = ρ g / (‖g‖ + ε), then back by subtraction."""

    def __init__(self, rho: float = 0.05, epsilon: float = 1e-12, interval: int = 1) -> None:
        self.rho, self.epsilon, self.interval = rho, epsilon, interval

    @torch.no_grad()
    def step(self, number: int, base: Optimizer, closure: Callable[[], Tensor]) -> None:
        with torch.enable_grad():
            closure()
        if (number + 1) % self.interval == 0:
            moved = [(p, g.clone()) for p, g in _gradients(base)]
            norm = torch.stack([g.norm() for _, g in moved]).norm()
            offsets = [(p, g * (self.rho / (norm + self.epsilon))) for p, g in moved]
            for p, e in offsets:
                p.add_(e)
            with torch.enable_grad():
                closure()
            for p, e in offsets:
                p.sub_(e)
        base.step()


class ComposerTrainer:
    """Epochs over the loader, with a model that knows its loss."""

    def __init__(self, **arguments: Any) -> None:
        self._of = SimpleNamespace(**arguments)

    def fit(self) -> None:
        of, number = self._of, 0
        (algorithm,), base = of.algorithms, of.optimizers
        for _ in range(int(of.max_duration.removesuffix("ep"))):
            for x, y in of.train_dataloader:

                def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
                    base.zero_grad()
                    loss = F.cross_entropy(of.model(x), y)
                    loss.backward()
                    return loss

                algorithm.step(number, base, closure)
                number += 1


COMPOSER: dict[str, dict[str, Any]] = {
    "composer": {"Trainer": ComposerTrainer},
    "composer__algorithms": {"SAM": ComposerSAM},
    "composer__models": {"ComposerClassifier": lambda model, num_classes: model},
}


# ---- timm ------------------------------------------------------------------------------------


def create_optimizer_v2(model: nn.Module, opt: str, lr: float, weight_decay: float) -> Optimizer:
    """Without weight decay for biases and vectors, which come first."""
    assert opt == "adamw"
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    rest = [p for p in model.parameters() if p.ndim > 1]
    groups = [
        {"params": vectors, "weight_decay": 0.0},
        {"params": rest, "weight_decay": weight_decay},
    ]
    return torch.optim.AdamW(groups, lr=lr)


class CosineLRScheduler:
    """lr(t) = lr (1 + cos(π t / T)) / 2, where t is told."""

    def __init__(self, optimizer: Optimizer, t_initial: int, t_in_epochs: bool = True) -> None:
        self.optimizer, self.t_initial, self.t_in_epochs = optimizer, t_initial, t_in_epochs
        self.base_values = [group["lr"] for group in optimizer.param_groups]

    def step(self, epoch: int) -> None:
        self._set(epoch, self.t_in_epochs)

    def step_update(self, num_updates: int) -> None:
        self._set(num_updates, not self.t_in_epochs)

    def _set(self, t: int, counts: bool) -> None:
        for group, value in zip(self.optimizer.param_groups, self.base_values, strict=True):
            if counts:
                group["lr"] = 0.5 * value * (1 + math.cos(math.pi * t / self.t_initial))


class ModelEmaV3(nn.Module):
    """v ← decay v + (1 − decay) x, over parameters and buffers."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__()
        self.module, self.decay = copy.deepcopy(model).eval(), decay

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        for v, x in zip(
            self.module.state_dict().values(), model.state_dict().values(), strict=True
        ):
            v.copy_(v.lerp(x, 1 - self.decay) if v.is_floating_point() else x)


TIMM: dict[str, dict[str, Any]] = {
    "timm": {},
    "timm__optim": {"create_optimizer_v2": create_optimizer_v2},
    "timm__scheduler": {"CosineLRScheduler": CosineLRScheduler},
    "timm__utils": {"ModelEmaV3": ModelEmaV3},
}


# ---- the published SAMPa script ----------------------------------------------------------------


def sampa_script(
    model: nn.Module,
    loader: Iterable[tuple[Tensor, Tensor]],
    *,
    epochs: int,
    lr: float,
    momentum: float,
    weight_decay: float,
    rho: float,
    og: float,
) -> None:
    """Both ranks one after the other, with the script's own way back and its recovered gradient."""
    optimizer = torch.optim.SGD(
        model.parameters(), lr=lr, momentum=momentum, weight_decay=weight_decay
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    weights: list[Tensor] = [*model.parameters()]
    zeros = torch.cat([torch.zeros_like(p).flatten() for p in weights])
    total, perturbed, at_y = zeros, zeros, zeros
    held: tuple[Tensor, Tensor] | None = None
    for _ in range(epochs):
        for batch in loader:
            recovered = (total - perturbed) / (og + 1e-15)
            climb = recovered * (rho / (recovered.norm() + 1e-12))
            ahead = -optimizer.param_groups[0]["lr"] * (at_y + _inertia(optimizer))
            perturbed = (1 - og) * _gradient_at(model, climb, held or batch)
            at_y = _gradient_at(model, ahead, batch)
            total = perturbed + og * at_y
            for p, part in zip(weights, _parts(total, weights), strict=True):
                p.grad = part
            optimizer.step()
            held = batch
        scheduler.step()


def _inertia(optimizer: torch.optim.SGD) -> Tensor | float:
    """Weight decay and momentum, as soon as there is a momentum buffer."""
    if not optimizer.state:
        return 0.0
    (group,) = optimizer.param_groups
    state, decay, momentum = optimizer.state, group["weight_decay"], group["momentum"]
    return torch.cat(
        [
            (decay * p.detach() + momentum * state[p]["momentum_buffer"]).flatten()
            for p in group["params"]
        ]
    )


def _gradient_at(model: nn.Module, offset: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    """At x + offset; 1 − 0.1 for the right class and 0.1 for the others together."""
    weights: list[Tensor] = [*model.parameters()]
    moves = _parts(offset, weights)
    with torch.no_grad():
        torch._foreach_add_(weights, moves)
    logits, y = model(batch[0]), batch[1]
    target = torch.full_like(logits, 0.1 / (logits.shape[1] - 1))
    target.scatter_(1, y[:, None], 0.9)
    loss = F.kl_div(F.log_softmax(logits, 1), target, reduction="none").sum(-1).mean()
    gradients = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        torch._foreach_sub_(weights, moves)
    return torch.cat([g.flatten() for g in gradients])


def _parts(vector: Tensor, weights: list[Tensor]) -> list[Tensor]:
    parts = vector.split([p.numel() for p in weights])
    return [part.view_as(p) for part, p in zip(parts, weights, strict=True)]
