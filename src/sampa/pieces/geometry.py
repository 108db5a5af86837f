"""From a direction to the perturbed weights: in which metric the ball of radius ρ is round.

A geometry is a function of the step's context and a direction; it returns the move to x̃. Everything
that depends on weights is evaluated where the move starts, at x_t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Literal, Protocol

import torch
from torch import Tensor

from sampa.messages import require, require_choice
from sampa.method import Context, Move, ParameterInfo, Selection
from sampa.vectors.reductions import tensor_norms
from sampa.vectors.vector import Number, Vector, Weights, add_, multiply, restrict


class Geometry(Protocol):
    """How far to go along a direction, and measured how."""

    def __call__(self, context: Context, direction: Vector) -> Move | None:
        """The move from x_t to x̃_t; None to stay."""
        ...

    def wrt(self, context: Context) -> Sequence[bool] | None:
        """The tensors whose gradient the direction is made of; None means all."""
        return None


@dataclass(frozen=True)
class Sphere(Geometry):
    """SAM's ball: x̃ = x + ρ d / ‖d‖   (eq. 2)."""

    def __call__(self, context: Context, direction: Vector) -> Move | None:
        return along(context, direction, direction.norm)


def along(context: Context, v: Vector, length: Number, factor: float = 1.0) -> Move:
    """The move x += factor · ρ v / length; nothing where the length is 0."""
    radii = context.groups.rho
    shares = {rho: share_of(factor * rho, length, context) for rho in set(radii)}

    def move(weights: Weights) -> None:
        add_(weights, v, [shares[rho] for rho in radii])  # x̃ = x + ρ v / ‖v‖

    return move


def share_of(part: Number, length: Number, context: Context) -> Number:
    """part / length, or 0 where the length is 0."""
    share = part / (length + context.groups.eps)
    return torch.where(length > 0, share, 0.0) if isinstance(length, Tensor) else share


def is_weight(parameter: ParameterInfo) -> bool:
    """ASAM's choice: tensors whose name contains "weight", normalization layers' included."""
    return "weight" in parameter.name


def every_parameter(parameter: ParameterInfo) -> bool:
    """The choice of all tensors."""
    return True


@dataclass(frozen=True)
class Adaptive(Geometry):
    """ASAM's ball, scaled by the size of the weights (Kwon et al., ICML 2021).

    T = |x| + η on the selected tensors, 1 elsewhere;   x̃ = x + ρ T² g / ‖T g‖   (p = 2)
    or   x̃ = x + ρ T sign(g)   (p = ∞).

    Attributes:
        eta: η. The authors' class has 0.01, their example script 0.
        select: Which tensors T scales. `every_parameter` with η = 0 is davda54/sam's reading.
        operator: "element": T = |x| + η; "filter": the norm of the convolution filter an entry
            belongs to; "layer": the norm of the whole tensor.
        p: 2 or infinity.
    """

    eta: float = 0.01
    select: Selection = is_weight
    operator: Literal["element", "filter", "layer"] = "element"
    p: float = 2

    def __post_init__(self) -> None:
        require("eta", self.eta, 0 <= self.eta < math.inf, "finite and >= 0")
        require("p", self.p, self.p in (2, math.inf), "2 or infinity")
        require_choice("operator", self.operator, ("element", "filter", "layer"))

    def __call__(self, context: Context, direction: Vector) -> Move:
        selected = selection(context, self.select)

        def move(weights: Weights) -> None:
            t = self.scales(weights, selected)
            scaled = multiply(t, direction)  # T g
            if self.p == math.inf:
                step, length = multiply(t, direction.map_elements(torch.sign)), 1.0
            else:
                step, length = multiply(t, scaled), scaled.norm  # T² g, ‖T g‖
            along(context, step, length)(weights)

        return move

    def scales(self, weights: Weights, selected: Sequence[bool]) -> Vector:
        """T for these weights: in which units a move of each element is measured."""
        x = [w.detach() for w in compress(weights, selected)]
        if self.operator == "layer":
            sizes = _layer_norms(x)
        else:
            sizes = map(torch.abs if self.operator == "element" else _filter_norms, x)
        chosen = iter(sizes)
        return Vector(
            [
                next(chosen) + self.eta if is_chosen else torch.ones_like(w)
                for w, is_chosen in zip(weights, selected, strict=True)
            ]
        )


def _filter_norms(w: Tensor) -> Tensor:
    # A shard is made of whole filters: it is cut along the first dimension.
    if w.ndim < 3:  # not a convolution in one, two or three dimensions
        return w.abs()
    axes = tuple(range(1, w.ndim))
    return torch.linalg.vector_norm(w, dim=axes, keepdim=True).expand_as(w)


def _layer_norms(tensors: Sequence[Tensor]) -> list[Tensor]:
    pairs = zip(tensor_norms(tensors), tensors, strict=True)
    return [norm.expand_as(w) for norm, w in pairs]


@dataclass(frozen=True)
class FisherBall(Geometry):
    """Fisher-SAM's ball, in the metric of the diagonal Fisher matrix (Kim et al., ICML 2022).

    F⁻¹ = 1 / (1 + η g²);   x̃ = x + γ F⁻¹ g / √(Σ F⁻¹ g²), with γ in the place of ρ.

    `euclidean` divides by ‖F⁻¹ g‖ instead, so that the move always has length γ; one of two public
    re-implementations does that.
    """

    eta: float = 1.0
    euclidean: bool = False

    def __post_init__(self) -> None:
        require("eta", self.eta, 0 <= self.eta < math.inf, "finite and >= 0")

    def __call__(self, context: Context, direction: Vector) -> Move | None:
        step = direction.map_elements(lambda g: g / (1 + self.eta * g.square()))  # F⁻¹ g
        root = direction.map_elements(lambda g: g / (1 + self.eta * g.square()).sqrt())  # √(F⁻¹) g
        return along(context, step, step.norm if self.euclidean else root.norm)


@dataclass(frozen=True)
class Only(Geometry):
    """A geometry on some tensors alone: the others stay, and do not count in the norm."""

    select: Selection
    inside: Geometry = Sphere()

    def __call__(self, context: Context, direction: Vector) -> Move | None:
        return self.inside(context, restrict(direction, self._chosen(context)))

    def wrt(self, context: Context) -> Sequence[bool] | None:
        return None if context.model.parameters() is None else self._chosen(context)

    def _chosen(self, context: Context) -> list[bool]:
        chosen = selection(context, self.select)
        require("select", self.select, any(chosen), "true for at least one parameter of the model")
        return chosen


@dataclass(frozen=True)
class Masked(Geometry):
    """The sphere's move where a mask of zeros and ones allows it: x̃ = x + ρ (d / ‖d‖) ⊙ m (SSAM).

    The norm is that of the whole direction, so the move is shorter than ρ.
    """

    mask: Vector

    def __call__(self, context: Context, direction: Vector) -> Move | None:
        return along(context, multiply(direction, self.mask), direction.norm)


def is_normalization(parameter: ParameterInfo) -> bool:
    """SAM-ON's choice: the weights and biases of normalization layers."""
    return parameter.is_normalization


def is_not_normalization(parameter: ParameterInfo) -> bool:
    """The opposite of SAM-ON's choice."""
    return not parameter.is_normalization


def selection(context: Context, select: Selection) -> list[bool]:
    """Which of the step's tensors a predicate selects.

    Raises:
        RuntimeError: If the layers that the tensors belong to are not known.
    """
    if select is every_parameter:
        return [True] * len(context.x)
    parameters = context.model.parameters()
    if parameters is None:
        raise RuntimeError(
            "this method selects parameters by their layer, and loss_fn ran no layer that some of "
            "them belong to; pass executor=sampa.distribute(model)"
        )
    return [select(parameter) for parameter in parameters]
