"""Buffers in one process: a batch counts once in all of them, whatever the layer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

import sampa
from sampa.execution.layers import LARGE_BUFFER, Layers
from tests.problems import cross_entropy_of, sgd, vector_batches


class Passes(nn.Module):
    """Counts training passes in buffers of every kind."""

    in_place: Tensor
    replaced: Tensor
    integer: Tensor
    flag: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("in_place", torch.zeros((), dtype=torch.double))
        self.register_buffer("replaced", torch.zeros(()))
        self.register_buffer("integer", torch.zeros((), dtype=torch.long))
        self.register_buffer("flag", torch.tensor(False))
        self.register_buffer("mean", torch.zeros(4, dtype=torch.double))
        self.register_buffer("variance", torch.ones(4, dtype=torch.double))
        self.register_buffer("unset", None)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.in_place += 1
            self.replaced = self.replaced + 1
            self.integer += 1
            self.flag.logical_not_()
        # torch's function writes to its buffers without raising their version.
        return F.batch_norm(x, self.mean, self.variance, training=self.training, momentum=0.5)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Passes(), nn.Linear(4, 3, dtype=torch.double))


@pytest.mark.parametrize("with_model", [True, False])
@pytest.mark.parametrize(
    "make", [sampa.SAM, sampa.SAMPa, sampa.GSAM, sampa.MultiStepSAM, sampa.MESA]
)
def test_every_buffer_counts_a_batch_once(make: Any, with_model: bool) -> None:
    model, twin = network(), network()
    options = {} if make is not sampa.MESA else {"start_epoch": 0}
    executor = sampa.Serial(model) if with_model else None
    optimizer = make(sgd(model), executor=executor, **options)

    def loss_fn(batch: Any) -> Any:
        logits = model(batch[0])
        return sampa.Loss(F.cross_entropy(logits, batch[1]), logits=logits, targets=batch[1])

    batches = vector_batches(5)
    for batch in batches:
        optimizer.step(loss_fn, batch)
        twin(batch[0])
    for (name, ours), plain in zip(model.named_buffers(), twin.buffers(), strict=True):
        assert torch.equal(ours, plain), name


def test_probes_of_a_round_begin_with_the_same_vectors_of_spectral_norm() -> None:
    """Serial or at once: neither pass sees what the other one left."""
    torch.manual_seed(0)
    model = spectral_norm(nn.Linear(4, 3, dtype=torch.double))
    seen: list[Tensor] = []
    u = model.get_buffer("parametrizations.weight.0._u")
    model.register_forward_pre_hook(lambda *_: seen.append(u.clone()))
    optimizer = sampa.SAMPa(sgd(model), executor=sampa.Serial(model))
    first, second = vector_batches(2)
    optimizer.step(cross_entropy_of(model), first)
    seen.clear()
    optimizer.step(cross_entropy_of(model), second)
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(u, seen[0])


class Late(nn.Module):
    """A large buffer that changes from the given pass on."""

    table: Tensor

    def __init__(self, first: int) -> None:
        super().__init__()
        self.passes, self.first = 0, first
        self.register_buffer("table", torch.zeros(LARGE_BUFFER))

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        if self.passes >= self.first:
            self.table += 1
        return x


def passes_over(model: nn.Module, count: int) -> Layers:
    layers = Layers(model)
    for _ in range(count):
        with layers.one_pass(counts=False):
            model(torch.zeros(1))
    return layers


def test_a_large_buffer_that_changes_at_once_is_put_back() -> None:
    model = Late(first=1)
    passes_over(model, 3)
    assert model.table.sum() == 0


def test_a_large_buffer_that_never_changes_is_not_copied() -> None:
    layers = passes_over(Late(first=10), 1)
    (saved,) = layers.saved_buffers()
    assert saved.values is None


def test_a_large_buffer_that_cannot_be_put_back_is_refused() -> None:
    with pytest.raises(RuntimeError, match="buffer 'table' of Late changed for the first time"):
        passes_over(Late(first=3), 3)


def test_a_large_buffer_that_changes_late_in_a_round_of_several_is_refused() -> None:
    model = nn.Sequential(Late(first=4), nn.Linear(4, 3, dtype=torch.double))
    optimizer = sampa.SAMPa(sgd(model), executor=sampa.Serial(model))
    first, second, third = vector_batches(3)
    optimizer.step(cross_entropy_of(model), first)  # one pass
    optimizer.step(cross_entropy_of(model), second)  # two
    with pytest.raises(RuntimeError, match="let the layer write to it in that pass too"):
        optimizer.step(cross_entropy_of(model), third)


def test_a_large_buffer_that_changes_late_in_a_pass_that_counts_is_put_back_from_then_on() -> None:
    model = Late(first=2)
    layers = Layers(model)
    for counts in (True, True, False, False):
        with layers.one_pass(counts=counts):
            model(torch.zeros(1))
    assert model.table[0] == 1


def test_a_large_buffer_that_is_written_in_the_first_pass_may_change_later() -> None:
    """The advice of the error."""
    model = Late(first=3)
    model.register_forward_hook(lambda *_: model.table.mul_(1))
    passes_over(model, 5)
    assert model.table.sum() == 0


class Lazy(nn.Module):
    """Keeps the first batch that it sees."""

    def __init__(self, is_registered: bool) -> None:
        super().__init__()
        if is_registered:
            self.register_buffer("first", None)

    def forward(self, x: Tensor) -> Tensor:
        if getattr(self, "first", None) is None:
            self.register_buffer("first", x.detach().clone())
        return x


@pytest.mark.parametrize("with_model", [True, False])
@pytest.mark.parametrize("is_registered", [True, False])
def test_a_buffer_that_a_pass_makes_is_refused_unless_it_counts(
    is_registered: bool, with_model: bool
) -> None:
    model = nn.Sequential(Lazy(is_registered), nn.Linear(4, 3))
    layers, weights = Layers(model if with_model else None), list(model.parameters())
    x = torch.zeros(2, 4)
    with (
        pytest.raises(RuntimeError, match="buffer 'first' of Lazy must have a value before"),
        layers.one_pass(weights, counts=False),
    ):
        model(x)
    with layers.one_pass(weights, counts=False):
        model(x)


def test_a_buffer_that_a_pass_that_counts_makes_is_followed() -> None:
    model = nn.Sequential(Lazy(is_registered=True), Passes(), nn.Linear(4, 3, dtype=torch.double))
    optimizer = sampa.SAM(sgd(model), executor=sampa.Serial(model))
    for batch in vector_batches(3):
        optimizer.step(cross_entropy_of(model), batch)
    assert torch.equal(model.get_buffer("0.first"), vector_batches(1)[0][0])
