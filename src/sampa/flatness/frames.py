"""Lines and planes in the space of the weights, for landscapes.

A frame has an origin and one or two directions. Floating-point buffers (BatchNorm's statistics)
move with the weights where a frame goes through checkpoints, and stay where they are otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sampa.execution.evaluate import LossFn
from sampa.execution.layers import Layers
from sampa.execution.randomness import derive_seed
from sampa.flatness.curvature import Matrix, hessian_eigenvalues
from sampa.messages import require
from sampa.method import Move
from sampa.vectors.random import RandomNumbers
from sampa.vectors.vector import Vector, Weights, add, add_, copy_, dot, scale

MARGIN = 0.25  # of the distance between checkpoints, shown beyond them


@dataclass(frozen=True)
class Side:
    """The weights of a frame, or its buffers.

    Attributes:
        origin: Where the frame starts; None means where the model is.
        directions: One vector for each dimension.
    """

    origin: Vector | None
    directions: tuple[Vector, ...]

    def point(self, coordinates: Sequence[float]) -> Vector:
        """The origin plus the directions times their coordinates."""
        assert self.origin is not None
        at = self.origin
        for direction, coordinate in zip(self.directions, coordinates, strict=True):
            at = add(at, direction, coordinate)
        return at


@dataclass(frozen=True)
class Frame:
    """A line or a plane in the space of the weights.

    Attributes:
        weights: Of the trainable parameters.
        buffers: Of the floating-point buffers; None where they stay.
        ranges: What is worth looking at in each dimension.
        marks: Points of interest by name, such as checkpoints, with their coordinates.
        gradients: What it cost to find.
    """

    weights: Side
    ranges: tuple[tuple[float, float], ...]
    buffers: Side | None = None
    marks: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    gradients: float = 0.0

    @property
    def dimensions(self) -> int:
        return len(self.weights.directions)

    def move(self, coordinates: Sequence[float]) -> Move:
        """The move of the weights to a point of the frame."""

        def move(weights: Weights) -> None:
            if self.weights.origin is not None:
                copy_(weights, self.weights.origin)
            for direction, coordinate in zip(self.weights.directions, coordinates, strict=True):
                add_(weights, direction, [coordinate] * len(direction))

        return move

    def buffer_values(self, coordinates: Sequence[float]) -> Vector | None:
        """The buffers at a point of the frame; None where they stay as they are."""
        return None if self.buffers is None else self.buffers.point(coordinates)


def random_frame(
    model: nn.Module, *, dimensions: int = 2, span: float = 1.0, seed: int = 0
) -> Frame:
    """Random directions, each filter scaled to the norm of the model's (Li et al., NeurIPS 2018).

    d_i ← (d_i / ‖d_i‖) ‖x_i‖ for each filter i of a convolution and each row of a matrix; biases
    and the weights of normalization layers stay. Costs nothing.

    Args:
        model: The network, at the weights of interest.
        dimensions: 1 or 2.
        span: Coordinates go from -span to span; at 1 the move is as long as the weights.
        seed: Of the directions: the same for all models that are compared.
    """
    require("dimensions", dimensions, dimensions in (1, 2), "1 or 2")
    require("span", span, 0 < span < math.inf, "finite and > 0")
    weights = trainable(model)
    random = RandomNumbers(derive_seed(seed, "flatness", "frame"))
    directions = (filter_normalized(random.normal(weights, i), weights) for i in range(dimensions))
    return Frame(Side(None, tuple(directions)), ((-span, span),) * dimensions)


def filter_normalized(direction: Vector, weights: Weights) -> Vector:
    """Each filter or row with the norm of the weights' one; nothing for biases and scales."""
    return Vector(
        None if d is None or w.ndim < 2 else _as_long_as(d, w.detach())
        for d, w in zip(direction, weights, strict=True)
    )


def _as_long_as(d: Tensor, w: Tensor) -> Tensor:
    axes = tuple(range(1, w.ndim))
    lengths = [torch.linalg.vector_norm(t, dim=axes, keepdim=True) for t in (d, w)]
    return d / lengths[0].clamp(min=torch.finfo(d.dtype).tiny) * lengths[1]


def eigenvector_frame(
    model: nn.Module,
    loss_fn: LossFn,
    batches: Iterable[Any],
    *,
    dimensions: int = 2,
    span: float = 1.0,
    matrix: Matrix = "hessian",
    tolerance: float = 1e-2,
    max_products: int = 50,
    seed: int = 0,
) -> Frame:
    """The directions of the largest curvature: coordinates are distances.

    Costs what `hessian_eigenvalues` does; the arguments are the same.
    """
    require("dimensions", dimensions, dimensions in (1, 2), "1 or 2")
    found = hessian_eigenvalues(
        model,
        loss_fn,
        batches,
        k=dimensions,
        matrix=matrix,
        tolerance=tolerance,
        max_products=max_products,
        seed=seed,
    )
    ranges = ((-span, span),) * dimensions
    return Frame(Side(None, found.vectors), ranges, gradients=found.gradients)


def through(model: nn.Module, checkpoints: Mapping[str, Mapping[str, Tensor]]) -> Frame:
    """The line through two checkpoints, or the plane through three (Garipov et al., NeurIPS 2018).

    On the line the coordinate is 0 at the first and 1 at the second. On the plane coordinates are
    distances: the first checkpoint is at (0, 0), the second at (‖x₂ − x₁‖, 0). Costs nothing.

    Args:
        model: A network that the checkpoints fit; its own weights do not matter.
        checkpoints: State dictionaries by name.

    Raises:
        ValueError: If there are not two or three of them, or one does not fit.
    """
    require("checkpoints", len(checkpoints), len(checkpoints) in (2, 3), "two or three")
    points = [_weights_in(model, name, state) for name, state in checkpoints.items()]
    kept = [_buffers_in(model, state) for state in checkpoints.values()]
    names = list(checkpoints)
    if len(points) == 2:
        marks = {names[0]: (0.0,), names[1]: (1.0,)}
        return Frame(_line(points), ((-MARGIN, 1 + MARGIN),), _line(kept), marks)
    u, v = (add(point, points[0], -1.0) for point in points[1:])
    length = float(u.norm)
    require("checkpoints", "two equal ones", length > 0, "different from each other")
    e_u = scale(u, 1 / length)
    along = float(dot(v, e_u))
    off = add(v, e_u, -along)
    height = float(off.norm)
    require("checkpoints", "three on a line", height > 1e-6 * length, "three that span a plane")
    e_v = scale(off, 1 / height)
    # Buffers follow the same affine map: at the three checkpoints they are the checkpoints' own.
    b_u, b_v = (add(values, kept[0], -1.0) for values in kept[1:])
    d_u = scale(b_u, 1 / length)
    d_v = scale(add(b_v, b_u, -along / length), 1 / height)
    marks = {names[0]: (0.0, 0.0), names[1]: (length, 0.0), names[2]: (along, height)}
    return Frame(Side(points[0], (e_u, e_v)), _around(marks), Side(kept[0], (d_u, d_v)), marks)


def _line(ends: Sequence[Vector]) -> Side:
    return Side(ends[0], (add(ends[1], ends[0], -1.0),))


def _around(marks: Mapping[str, tuple[float, ...]]) -> tuple[tuple[float, float], ...]:
    ranges = []
    for places in zip(*marks.values(), strict=True):
        margin = MARGIN * (max(places) - min(places))
        ranges.append((min(places) - margin, max(places) + margin))
    return tuple(ranges)


def trainable(model: nn.Module) -> list[Tensor]:
    """The parameters that are trained, in the model's order."""
    return [p for p in model.parameters() if p.requires_grad]


def _weights_in(model: nn.Module, which: str, state: Mapping[str, Tensor]) -> Vector:
    """The trainable parameters of a checkpoint."""
    found: list[Tensor] = []
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        saved = state.get(name)
        shape = None if saved is None else tuple(saved.shape)
        rule = f"one with {name} of shape {tuple(p.shape)}"
        require(f"checkpoint {which!r}", shape, shape == tuple(p.shape), rule)
        assert saved is not None
        found.append(saved.detach().to(p.device, p.dtype))
    return Vector(found)


def _buffers_in(model: nn.Module, state: Mapping[str, Tensor]) -> Vector:
    """The floating-point buffers of a checkpoint; the model's own where it has none."""
    names = {id(b): name for name, b in model.named_buffers()}
    found = []
    for buffer in Layers(model).float_buffers():
        saved = state.get(names.get(id(buffer), ""), buffer)
        found.append(saved.detach().to(buffer.device, buffer.dtype).clone())
    return Vector(found)
