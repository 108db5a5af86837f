"""When to perturb: every step, every k-th, by a coin, or when the gradient is unusually large.

A policy is asked after the clean gradient is known. It returns the decision and its own memory (a
tuple of numbers, empty at the start). The decision depends on shared numbers alone, so that all
ranks take the same one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sampa.messages import require, require_choice
from sampa.method import Context
from sampa.vectors.vector import Vector

Memory = tuple[float, ...]


class Policy(Protocol):
    """Whether to perturb at this step, from the gradient and the policy's own numbers."""

    def __call__(self, context: Context, g: Vector, memory: Memory) -> tuple[bool, Memory]: ...


@dataclass(frozen=True)
class Always:
    """At every step: SAM."""

    def __call__(self, context: Context, g: Vector, memory: Memory) -> tuple[bool, Memory]:
        return True, memory


@dataclass(frozen=True)
class Every:
    """At t = 0, k, 2k, ...: LookSAM."""

    k: int

    def __post_init__(self) -> None:
        require("k", self.k, self.k >= 1, ">= 1")

    def __call__(self, context: Context, g: Vector, memory: Memory) -> tuple[bool, Memory]:
        return context.t % self.k == 0, memory


@dataclass(frozen=True)
class Coin:
    """With probability p(t), or as `coins` say: RST. One coin an update, the same on all ranks.

    Never in the first `warmup` updates, as the authors' code does in its warm-up epochs.
    """

    p: Callable[[int], float]
    coins: Sequence[bool] | None
    warmup: int

    def __post_init__(self) -> None:
        require("warmup", self.warmup, self.warmup >= 0, ">= 0")

    def __call__(self, context: Context, g: Vector, memory: Memory) -> tuple[bool, Memory]:
        if context.t < self.warmup:
            return False, memory
        if self.coins is not None:
            enough, t = len(self.coins) > context.t, context.t + 1
            require("len(coins)", len(self.coins), enough, f">= {t} for update number {t}")
            return bool(self.coins[context.t]), memory
        return context.random.number() < self.p(context.t), memory


RST_SCHEDULES = ("constant", "piecewise1", "piecewise2", "piecewise3", "linear1", "linear2")


@dataclass(frozen=True)
class Probability:
    """RST's schedules p(t) from one parameter P and the number of updates T.

    constant: P.  piecewise1: 0 until P T, then 1.  piecewise2: 1 until P T, then 0.
    piecewise3: P in the first half, 1−P in the second.  linear1: a ramp with mean P.
    linear2: from P to 1−P.
    """

    p: float
    schedule: str
    total_steps: int | None

    def __post_init__(self) -> None:
        require("p", self.p, 0 <= self.p <= 1, "in [0, 1]")
        require_choice("schedule", self.schedule, RST_SCHEDULES)
        needs_total = self.schedule != "constant"
        given = self.total_steps is not None and self.total_steps > 0
        require("total_steps", self.total_steps, given or not needs_total, "> 0 for this schedule")

    def __call__(self, t: int) -> float:
        p, s = self.p, min(t / (self.total_steps or 1), 1.0)
        low, high = (0.0, 2 * p) if p <= 0.5 else (2 * p - 1, 1.0)
        return {
            "constant": p,
            "piecewise1": float(s >= p),
            "piecewise2": float(s < p),
            "piecewise3": p if s < 0.5 else 1 - p,
            "linear1": low + (high - low) * s,
            "linear2": p + (1 - 2 * p) * s,
        }[self.schedule]


@dataclass(frozen=True)
class LargeGradient:
    """When ‖g‖² is large against its running mean: AE-SAM (Jiang et al., ICLR 2023).

    q = ‖g‖²;  μ_t = δ μ_{t−1} + (1−δ) q;  v_t = δ v_{t−1} + (1−δ) (q − μ_t)²
    c_t = (t/T) λ₁ + (1 − t/T) λ₂;  perturb if q >= μ_t + c_t √v_t

    Without `total_steps` the threshold stays in the middle between its two ends.
    """

    delta: float
    lambda1: float
    lambda2: float
    total_steps: int | None

    def __post_init__(self) -> None:
        require("delta", self.delta, 0 <= self.delta < 1, "in [0, 1)")
        for name in ("lambda1", "lambda2"):  # 0 · ∞ at one end of the run would be NaN
            require(name, getattr(self, name), math.isfinite(getattr(self, name)), "finite")
        given = self.total_steps is None or self.total_steps > 0
        require("total_steps", self.total_steps, given, "> 0 or None")

    def __call__(self, context: Context, g: Vector, memory: Memory) -> tuple[bool, Memory]:
        mean, variance = memory or (0.0, math.exp(-10))
        q = float(g.norm) ** 2
        mean = self.delta * mean + (1 - self.delta) * q
        variance = self.delta * variance + (1 - self.delta) * (q - mean) ** 2
        threshold = mean + self.deviations(context.t) * math.sqrt(variance)
        return q >= threshold, (mean, variance)

    def deviations(self, t: int) -> float:
        """c_t: how many standard deviations above the mean count as large."""
        share = 0.5 if self.total_steps is None else min(t / self.total_steps, 1.0)
        return share * self.lambda1 + (1 - share) * self.lambda2
