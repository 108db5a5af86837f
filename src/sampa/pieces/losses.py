"""Objectives other than the training loss: what to climb (BiSAM), what to add to it (SAF, MESA)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from sampa.loss import Loss
from sampa.messages import require, require_choice


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


@dataclass(frozen=True)
class KeepOutputs:
    """The training loss plus λ mean_i KL(softmax(z'_i/τ) ‖ softmax(z_i/τ)), times τ² if so chosen.

    SAF's and MESA's term: it keeps the logits z near a teacher's z' in epochs
    `start_epoch` < e < `end_epoch`.
    """

    lam: float
    tau: float
    start_epoch: int
    end_epoch: int | None
    scale_tau2: bool

    def __post_init__(self) -> None:
        require("lam", self.lam, 0 <= self.lam < math.inf, "finite and >= 0")
        require("tau", self.tau, 0 < self.tau < math.inf, "finite and > 0")
        require("start_epoch", self.start_epoch, self.start_epoch >= 0, ">= 0")
        ends = self.end_epoch is None or self.end_epoch >= 0
        require("end_epoch", self.end_epoch, ends, ">= 0 or None")

    def is_active(self, epoch: int) -> bool:
        before_end = self.end_epoch is None or epoch < self.end_epoch
        return self.lam > 0 and self.start_epoch < epoch and before_end

    def __call__(self, loss: Loss, teacher: Tensor, logits: Tensor) -> Tensor:
        """With the KL term of the samples that have a teacher, over the number of all."""
        assert loss.value is not None
        total = loss.logits.shape[0] if loss.logits is not None else 1
        kl = distillation(teacher, logits, self.tau, scale_tau2=self.scale_tau2)
        return loss.value + self.lam * kl / total


def distillation(teacher: Tensor, logits: Tensor, tau: float, *, scale_tau2: bool) -> Tensor:
    """Σ_i KL(softmax(z'_i/τ) ‖ softmax(z_i/τ)) over the samples, times τ² as the SAF code does."""
    kl = F.kl_div(
        F.log_softmax(logits / tau, dim=1),
        F.log_softmax(teacher / tau, dim=1),
        reduction="sum",
        log_target=True,
    )
    return kl * tau**2 if scale_tau2 else kl
