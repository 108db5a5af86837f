"""What `loss_fn` may return besides a scalar, and the objectives that need it.

Most methods only need the loss. Those that change the loss or the samples ask for more: return
`sampa.Loss(value, logits=z, targets=y)` and they find it there. Objectives are functions of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from sampa.messages import require, require_choice


@dataclass(frozen=True)
class Loss:
    """A loss together with what some methods need to know about it.

    Attributes:
        value: The scalar training loss with its graph. May be left out if `per_sample` is given.
        per_sample: The loss of each sample (reduction="none"); its mean is the loss.
        logits: One row of class scores per sample.
        targets: The class of each sample.
        index: The number of each sample in the data set, the same in every epoch.
    """

    value: Tensor | None = None
    per_sample: Tensor | None = None
    logits: Tensor | None = None
    targets: Tensor | None = None
    index: Tensor | None = None

    def need(self, who: str, *names: str) -> list[Tensor]:
        """The named fields.

        Raises:
            ValueError: Naming what is missing and how to provide it.
        """
        missing = [name for name in names if getattr(self, name) is None]
        if missing:
            shown = ", ".join(f"{name}=..." for name in names)
            raise ValueError(
                f"{who} needs {' and '.join(missing)} from loss_fn, got only "
                f"{', '.join(f.name for f in fields(self) if getattr(self, f.name) is not None)}; "
                f"write `return sampa.Loss(loss, {shown})`"
            )
        return [getattr(self, name) for name in names]

    def detached(self) -> Loss:
        """The same numbers without their graph."""
        return Loss(**{f.name: _detach(getattr(self, f.name)) for f in fields(self)})


Objective = Callable[[Loss], Tensor]
"""A scalar to differentiate, in place of the training loss."""


def checked_loss(output: Any, *, differentiable: bool = True) -> Loss:
    """What `loss_fn` returned, with a scalar value that can be differentiated.

    Raises:
        TypeError: If it is neither a tensor nor a `Loss`.
        ValueError: If it is not a scalar, or has no graph.
    """
    loss = Loss(output) if isinstance(output, Tensor) else output
    if not isinstance(loss, Loss):
        raise TypeError(
            f"loss_fn must return the loss as a tensor (or a sampa.Loss), got "
            f"{type(output).__name__}; write `return F.cross_entropy(model(x), y)` without "
            ".item() and without a tuple"
        )
    value = loss.value
    if value is None:
        (per_sample,) = loss.need("the training loss", "per_sample")
        value = per_sample.mean()
    if value.numel() != 1:
        raise ValueError(
            f"loss_fn must return a scalar, got shape {tuple(value.shape)}; "
            "average over the batch with loss.mean()"
        )
    if differentiable and not value.requires_grad:
        raise ValueError(
            "loss_fn must return the loss with its graph, got a tensor that needs no gradient; "
            "do not detach it, compute it under no_grad, or call backward in it: sampa does that"
        )
    return Loss(value.reshape(()), loss.per_sample, loss.logits, loss.targets, loss.index)


@dataclass(frozen=True)
class ZeroOneBound:
    """BiSAM's ascent objective Q, a smooth lower bound of the 0-1 loss (Xie et al., ICML 2024).

    F_j = z_j − z_y,   Q = mean over samples of (1/μ) log Σ_j exp(μ φ(F_j))

    Attributes:
        phi: "log": φ(v) = 1 − log(1 + exp(log(e−1) − v)); "tanh": φ(v) = tanh(α v).
        mu: Sharpness of the soft maximum. The authors use 1 for "log" and 10 for "tanh".
        alpha: Slope of "tanh".
    """

    phi: Literal["log", "tanh"] = "log"
    mu: float = 1.0
    alpha: float = 0.1

    def __post_init__(self) -> None:
        require_choice("phi", self.phi, ("log", "tanh"))
        require("mu", self.mu, 0 < self.mu < math.inf, "finite and > 0")
        require("alpha", self.alpha, 0 < self.alpha < math.inf, "finite and > 0")

    def __call__(self, loss: Loss) -> Tensor:
        logits, targets = loss.need("BiSAM", "logits", "targets")
        margins = logits - logits.gather(1, targets[:, None])  # F_j = z_j − z_y
        if self.phi == "log":
            phi = 1 - F.softplus(math.log(math.e - 1) - margins)
        else:
            phi = torch.tanh(self.alpha * margins)
        return torch.logsumexp(self.mu * phi, dim=1).mean() / self.mu


def distillation(teacher: Tensor, logits: Tensor, tau: float, *, scale_tau2: bool) -> Tensor:
    """Σ_i KL(softmax(z'_i/τ) ‖ softmax(z_i/τ)) over the samples, times τ² as the SAF code does."""
    kl = F.kl_div(
        F.log_softmax(logits / tau, dim=1),
        F.log_softmax(teacher / tau, dim=1),
        reduction="sum",
        log_target=True,
    )
    return kl * tau**2 if scale_tau2 else kl


def _detach(t: Tensor | None) -> Tensor | None:
    return None if t is None else t.detach()
