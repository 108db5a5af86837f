"""The loss on a line or a plane of the space of weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from sampa.execution.evaluate import LossFn
from sampa.flatness.frames import Frame, random_frame
from sampa.flatness.surface import Surface
from sampa.messages import require


@dataclass(frozen=True)
class Landscape:
    """The loss on a grid of a frame.

    Attributes:
        axes: The coordinates in each dimension.
        losses: One for each point: losses[i] on a line, losses[i, j] at (axes[0][i], axes[1][j]).
        marks: Points of interest by name, with their coordinates.
        gradients: What it cost.
    """

    axes: tuple[Tensor, ...]
    losses: Tensor
    marks: Mapping[str, tuple[float, ...]]
    gradients: float

    @property
    def barrier(self) -> float:
        """The largest rise of the loss above the straight line between the ends of a path.

        max_{0 ≤ α ≤ 1} f((1−α) x₁ + α x₂) − ((1−α) f(x₁) + α f(x₂)) (Frankle et al., ICML 2020), on
        the points of the grid.

        Raises:
            ValueError: If this is not a line with the points 0 and 1.
        """
        axis = self.axes[0]
        ends = [(axis == end).nonzero() for end in (0.0, 1.0)]
        is_path = len(self.axes) == 1 and all(len(end) == 1 for end in ends)
        require("the landscape", f"{len(self.axes)}-dimensional", is_path, "a line through 0 and 1")
        first, last = (int(end) for end in ends)
        inside = self.losses[first : last + 1]
        alpha = axis[first : last + 1]
        return float((inside - (1 - alpha) * inside[0] - alpha * inside[-1]).max())


def landscape(
    model: nn.Module,
    loss_fn: LossFn,
    batches: Iterable[Any],
    frame: Frame | None = None,
    *,
    points: int = 21,
    training: bool = False,
    seed: int = 0,
    done: Callable[[int, int], None] | None = None,
) -> Landscape:
    """The loss on a grid of a line or a plane.

    Costs ⅓ gradient for each point, and what the frame has cost.

    Args:
        model: The network, at the weights of interest.
        loss_fn: From a batch to the mean loss of its samples.
        batches: The samples.
        frame: The line or plane: `random_frame`, `eigenvector_frame` or `through`. The first in two
            dimensions, if not given.
        points: In each dimension. A line through checkpoints has their places among them.
        training: Whether layers behave as in training.
        seed: Of random numbers in the model, and of the frame if none is given.
        done: Told after each point how many are done, and how many there are.
    """
    require("points", points, points >= 2, ">= 2")
    frame = random_frame(model, seed=seed) if frame is None else frame
    surface = Surface(model, loss_fn, batches, training=training, seed=seed)
    axes = tuple(_axis(low, high, points) for low, high in frame.ranges)
    if frame.dimensions == 1:
        axes = (_with_marks(axes[0], [mark[0] for mark in frame.marks.values()]),)
    places = list(product(*(axis.tolist() for axis in axes)))
    losses: list[float] = []
    for place in places:
        losses.append(surface.loss(frame.move(place), frame.buffer_values(place)))
        if done is not None:
            done(len(losses), len(places))
    shape = tuple(len(axis) for axis in axes)
    return Landscape(
        axes,
        torch.tensor(losses, dtype=torch.float64).reshape(shape),
        frame.marks,
        surface.gradients + frame.gradients,
    )


def _with_marks(axis: Tensor, marks: list[float]) -> Tensor:
    """The coordinates with those of the marks among them, exactly."""
    near = 1e-6 * float(axis[-1] - axis[0])
    others = [c for c in axis.tolist() if all(abs(c - mark) > near for mark in marks)]
    return torch.tensor(sorted(others + marks), dtype=torch.float64)


def _axis(low: float, high: float, points: int) -> Tensor:
    """Coordinates from low to high; exactly 0 in the middle of a symmetric range."""
    steps = torch.arange(points, dtype=torch.float64) / (points - 1)
    return low * (1 - steps) + high * steps
