"""Sharpness: how much the loss rises nearby, at worst or on average.

worst case    max_{‖ε/c‖_p ≤ ρ} f(x + ε) − f(x)
average       E_ε f(x + ε) − f(x),   ε_i ~ N(0, ρ² c_i² / d), so that E‖ε/c‖² = ρ²

With c = 1 and p = 2 the first is the sharpness of SAM (Foret et al., ICLR 2021), whose m-sharpness
is the mean of it over groups of m samples, each with a maximum of its own. With c = |x| (p = 2 or
infinity) it is adaptive sharpness (Kwon et al., ICML 2021; Andriushchenko et al., ICML 2023), which
does not change when a layer is multiplied and the next one divided by the same number.

The published code draws ε with standard deviation ρ and not ρ/√d; one ρ then is not the same size
for both kinds. Pass rho=σ√d for a standard deviation of σ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from sampa.execution.evaluate import LossFn
from sampa.execution.randomness import derive_seed
from sampa.flatness.surface import Surface
from sampa.messages import require, require_choice
from sampa.method import Move
from sampa.pieces.geometry import Adaptive, every_parameter
from sampa.vectors.random import RandomNumbers
from sampa.vectors.vector import Vector, Weights, add, add_, multiply, scale

ELEMENTS = Adaptive(eta=0.0, select=every_parameter)


@dataclass(frozen=True)
class Sharpness:
    """How much the loss rises within ρ.

    Attributes:
        value: The mean over the groups, by their numbers of samples.
        values: Of each group of m samples, for a confidence interval; one value if m is None.
        loss: At the weights themselves.
        gradients: What it cost.
    """

    value: float
    values: tuple[float, ...]
    loss: float
    gradients: float


def sharpness(
    model: nn.Module,
    loss_fn: LossFn,
    batches: Iterable[Any],
    *,
    rho: float = 0.05,
    kind: Literal["worst", "average"] = "worst",
    p: float = 2,
    adaptive: bool | Adaptive = False,
    normalize_logits: bool = False,
    m: int | Literal["batch"] | None = None,
    steps: int = 1,
    restarts: int = 0,
    draws: int = 10,
    training: bool = False,
    seed: int = 0,
) -> Sharpness:
    """How much the loss rises within a distance ρ of the weights.

    Costs steps + ⅓ gradients for each start (the first is the weights themselves), or (draws + 1)/3
    for the average; the same for every m.

    Args:
        model: The network, at the weights of interest.
        loss_fn: From a batch to the mean loss of its samples, as for `optimizer.step`.
        batches: The samples. Compare models on the same ones, and at the same ρ.
        rho: The distance.
        kind: "worst" climbs to the maximum, "average" draws Gaussian ε.
        p: The norm of the distance in the worst case: 2 or infinity.
        adaptive: Measure ε_i in units of |x_i|. An `Adaptive` chooses other units: of filters,
            layers, or with an η.
        normalize_logits: Take the cross-entropy of (z − mean)/‖z − mean‖ in place of the loss;
            `loss_fn` returns sampa.Loss(value, logits=z, targets=y) then.
        m: Samples that share a maximum (or draws): a number, "batch" for each batch given, None
            for all together.
        steps: Of the ascent. The first takes the whole distance along the gradient, so that one
            step is SAM's point; the step is halved where the loss does not rise.
        restarts: Further ascents, from random points at distance ρ.
        draws: Of ε, for the average.
        training: Whether layers behave as in training.
        seed: Of random numbers.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> net, batch = nn.Linear(2, 1), torch.randn(8, 2)
        >>> loss_fn = lambda x: net(x).square().mean()
        >>> found = sharpness(net, loss_fn, [batch], rho=0.1, steps=5)
        >>> found.value >= 0, found.gradients
        (True, 5.333...)
    """
    require("rho", rho, 0 <= rho < math.inf, "finite and >= 0")
    require_choice("kind", kind, ("worst", "average"))
    require("p", p, p in (2, math.inf), "2 or infinity")
    for name, count, least in (("steps", steps, 1), ("restarts", restarts, 0), ("draws", draws, 1)):
        require(name, count, count >= least, f">= {least}")
    options: dict[str, Any] = {"training": training, "normalize_logits": normalize_logits}
    surface = Surface(model, loss_fn, batches, **options, seed=seed)
    ball = Ball(rho, p, _units(surface.weights, adaptive))
    random = RandomNumbers(derive_seed(seed, "flatness", "sharpness"))
    groups = surface.groups(m)
    if kind == "worst":
        found = [_worst(group, ball, steps, restarts, random) for group in groups]
    else:
        found = [_average(group, ball, draws, random) for group in groups]
    losses, rises = zip(*found, strict=True)
    shares = [group.share for group in groups]
    return Sharpness(_mean(rises, shares), rises, _mean(losses, shares), surface.gradients)


def _mean(values: Sequence[float], shares: Sequence[float]) -> float:
    return math.fsum(v * s for v, s in zip(values, shares, strict=True))


def _units(weights: Weights, adaptive: bool | Adaptive) -> Vector | None:
    """c: the unit of each element's distance; None where all are 1."""
    if adaptive is False:
        return None
    chosen = ELEMENTS if adaptive is True else adaptive
    require(
        "select of adaptive",
        chosen.select,
        chosen.select is every_parameter,
        "every_parameter: Adaptive(eta=..., select=every_parameter)",
    )
    with torch.no_grad():
        return chosen.scales(weights, [True] * len(weights))


@dataclass(frozen=True)
class Ball:
    """‖u‖_p ≤ ρ, with ε = c u.

    Attributes:
        rho: Its radius.
        p: 2 or infinity.
        units: c, or None where it is 1.
    """

    rho: float
    p: float
    units: Vector | None

    def move(self, u: Vector) -> Move:
        """x → x + c u."""
        offset = u if self.units is None else multiply(self.units, u)

        def move(weights: Weights) -> None:
            add_(weights, offset, [1.0] * len(offset))

        return move

    def climbed(self, u: Vector | None, gradient: Vector, step: float) -> Vector:
        """The point of the ball next to u + step · d, with d the steepest direction of length 1."""
        slope = gradient if self.units is None else multiply(self.units, gradient)  # ∂f/∂u = c g
        if self.p == math.inf:
            d = scale(slope.map_elements(torch.sign), step)
        else:
            d = scale(slope, torch.where(slope.norm > 0, step / slope.norm, 0.0))
        return self.inside(d if u is None else add(u, d))

    def inside(self, u: Vector) -> Vector:
        """The point of the ball next to u."""
        if self.p == math.inf:
            return u.map_elements(lambda t: t.clamp(-self.rho, self.rho))
        return scale(u, torch.where(u.norm > self.rho, self.rho / u.norm, 1.0))

    def random_point(self, weights: Weights, random: RandomNumbers, draw: int) -> Vector:
        """A point at distance ρ: uniform on the sphere, or in a corner of the cube."""
        u = random.normal(weights, draw)
        if self.p == math.inf:
            return scale(u.map_elements(torch.sign), self.rho)
        return scale(u, self.rho / u.norm)


def _worst(
    surface: Surface, ball: Ball, steps: int, restarts: int, random: RandomNumbers
) -> tuple[float, float]:
    """The loss, and its largest rise that was found."""
    loss, highest = _ascend(surface, ball, None, steps)
    for draw in range(restarts):
        start = ball.random_point(surface.weights, random, draw)
        highest = max(highest, _ascend(surface, ball, start, steps)[1])
    return loss, highest - loss


def _ascend(surface: Surface, ball: Ball, u: Vector | None, steps: int) -> tuple[float, float]:
    """The loss at a start, and the highest that was found from there."""
    first, gradient = surface.gradient(None if u is None else ball.move(u))
    highest, step = first, ball.rho
    for left in reversed(range(steps)):
        to = ball.climbed(u, gradient, step)
        if left == 0:
            return first, max(highest, surface.loss(ball.move(to)))
        loss, slope = surface.gradient(ball.move(to))
        if loss > highest:
            u, gradient, highest = to, slope, loss
        else:
            step /= 2
    raise AssertionError("there is at least one step")


def _average(
    surface: Surface, ball: Ball, draws: int, random: RandomNumbers
) -> tuple[float, float]:
    """The loss, and its mean rise at random points."""
    loss, size = surface.loss(), sum(w.numel() for w in surface.weights)
    total = 0.0
    for draw in range(draws):
        u = scale(random.normal(surface.weights, draw), ball.rho / math.sqrt(size))
        total += surface.loss(ball.move(u))
    return loss, total / draws - loss
