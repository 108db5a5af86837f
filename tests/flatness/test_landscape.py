"""Landscapes against the loss evaluated point by point."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sampa import flatness
from sampa.flatness.frames import filter_normalized, trainable
from sampa.vectors.vector import Vector
from tests.flatness.reference import (
    batches,
    flat,
    flattened,
    hessian,
    joined,
    loss_at,
    loss_of,
    net,
)
from tests.problems import image_batches, small_net


def state_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: t.clone() for name, t in model.state_dict().items()}


def small_states(count: int) -> list[dict[str, Tensor]]:
    """Networks with BatchNorm statistics of their own."""
    found = []
    for seed in range(count):
        model = small_net(seed, dropout=0.0)
        for x, _ in image_batches(3, seed=seed):
            model(x + seed)
        found.append(state_of(model))
    return found


def twins() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A trained network, and the same function with its channels in another order."""
    model = small_net(dropout=0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(15):
        for x, y in image_batches(2):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    first = state_of(model)
    second = {
        n: t.roll(1, 0) if t.ndim and not n.startswith("head") else t for n, t in first.items()
    }
    second["head.weight"] = first["head.weight"].view(10, 6, 64).roll(1, 1).reshape(10, -1)
    return first, second


def loss_with(state: Mapping[str, Tensor]) -> float:
    model = small_net(dropout=0.0)
    model.load_state_dict(state)
    total = 0.0
    with torch.no_grad():
        for x, y in image_batches(2):
            total += float(F.cross_entropy(model.eval()(x), y)) / 2
    return total


def between(a: Mapping[str, Tensor], b: Mapping[str, Tensor], alpha: float) -> dict[str, Tensor]:
    return {n: (1 - alpha) * a[n] + alpha * b[n] if a[n].is_floating_point() else a[n] for n in a}


def test_random_directions_have_the_norms_of_the_filters_and_leave_biases() -> None:
    model = small_net()
    weights = trainable(model)
    frame = flatness.random_frame(model, seed=4)
    for direction in frame.weights.directions:
        for w, d in zip(weights, direction, strict=True):
            if w.ndim < 2:
                assert d is None
                continue
            assert d is not None
            torch.testing.assert_close(d.flatten(1).norm(dim=1), w.detach().flatten(1).norm(dim=1))
    same = flatness.random_frame(model, seed=4).weights.directions[0]
    other = flatness.random_frame(model, seed=5).weights.directions[0]
    assert torch.equal(flattened(same), flattened(frame.weights.directions[0]))
    assert not torch.equal(flattened(same), flattened(other))


def test_a_filter_of_zeros_does_not_move() -> None:
    w = nn.Parameter(torch.zeros(2, 3))
    assert torch.equal(
        flattened(filter_normalized(Vector([torch.ones(2, 3)]), [w])), torch.zeros(6)
    )


def test_every_point_of_a_random_plane_is_the_loss_there() -> None:
    model, data = net(), batches()
    frame = flatness.random_frame(model, span=0.5, seed=1)
    found = flatness.landscape(model, loss_of(model), data, frame, points=5)
    names = [name for name, _ in model.named_parameters()]
    d = [
        torch.cat(
            [
                (torch.zeros(p.numel(), dtype=p.dtype) if t is None else t.reshape(-1))
                for t, p in zip(direction, model.parameters(), strict=True)
            ]
        )
        for direction in frame.weights.directions
    ]
    assert len(names) == 4
    for i, a in enumerate(found.axes[0]):
        for j, b in enumerate(found.axes[1]):
            expected = loss_at(model, flat(model) + a * d[0] + b * d[1], joined(data))
            assert float(found.losses[i, j]) == pytest.approx(float(expected), rel=1e-12)
    assert float(found.axes[0][2]) == 0.0
    assert found.gradients == pytest.approx(25 / 3)


def test_a_line_between_checkpoints_and_its_barrier() -> None:
    first, second = twins()
    model, data = small_net(7, dropout=0.0), list(image_batches(2))
    before = state_of(model)
    frame = flatness.through(model, {"a": first, "b": second})
    found = flatness.landscape(model, loss_of(model), data, frame, points=7)
    axis = found.axes[0].tolist()
    assert {0.0, 1.0} <= set(axis)
    expected = [loss_with(between(first, second, alpha)) for alpha in axis]
    assert found.losses.tolist() == pytest.approx(expected, rel=1e-5)  # float32
    inside = [
        loss - (1 - alpha) * loss_with(first) - alpha * loss_with(second)
        for alpha, loss in zip(axis, expected, strict=True)
        if 0 <= alpha <= 1
    ]
    assert found.barrier == pytest.approx(max(inside), rel=1e-4)
    assert found.barrier > 0.1
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())


def test_a_plane_through_three_checkpoints_has_their_losses_at_their_marks() -> None:
    states = small_states(3)
    model, data = small_net(7, dropout=0.0), list(image_batches(2))
    frame = flatness.through(model, dict(zip("abc", states, strict=True)))
    e_u, e_v = frame.weights.directions
    assert float(e_u.norm) == pytest.approx(1, rel=1e-5)
    assert float(flattened(e_u) @ flattened(e_v)) == pytest.approx(0, abs=1e-5)
    for name, state in zip("abc", states, strict=True):
        point = frame.marks[name]
        at = flatness.Frame(frame.weights, tuple((c, c + 1) for c in point), frame.buffers)
        found = flatness.landscape(model, loss_of(model), data, at, points=2)
        assert float(found.losses[0, 0]) == pytest.approx(loss_with(state), rel=1e-4)
    (low, high), _ = frame.ranges
    assert low < 0 < frame.marks["b"][0] < high


def test_the_loss_along_an_eigenvector_curves_by_its_eigenvalue() -> None:
    model, data = net(), batches()
    top = torch.linalg.eigvalsh(hessian(model, joined(data))).flip(0)[:2]
    frame = flatness.eigenvector_frame(
        model, loss_of(model), data, span=1e-3, tolerance=1e-8, max_products=21
    )
    found = flatness.landscape(model, loss_of(model), data, frame, points=3)
    for dim in range(2):
        line = found.losses[:, 1] if dim == 0 else found.losses[1, :]
        curved = float(line[0] - 2 * line[1] + line[2]) / 1e-6
        assert curved == pytest.approx(float(top[dim]), rel=1e-4)
    assert found.gradients == pytest.approx(frame.gradients + 3)


def test_checkpoints_that_do_not_fit_are_named() -> None:
    model = net()
    state = state_of(model)
    other = copy.deepcopy(state)
    other["0.weight"] = torch.zeros(5)
    with pytest.raises(ValueError, match=r"checkpoint 'b' must be one with 0.weight of shape"):
        flatness.through(model, {"a": state, "b": other})
    with pytest.raises(ValueError, match="checkpoints must be two or three, got 1"):
        flatness.through(model, {"a": state})
    with pytest.raises(ValueError, match="different from each other"):
        flatness.through(model, {"a": state, "b": state, "c": state})


def test_only_a_path_has_a_barrier() -> None:
    model, data = net(), batches()
    found = flatness.landscape(model, loss_of(model), data, points=2)
    with pytest.raises(ValueError, match="a line through 0 and 1"):
        found.barrier  # noqa: B018
