"""BatchNorm's running statistics: each batch counts exactly once, whatever the method."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

import sampa
from sampa.execution.layers import Layers
from tests.problems import METHODS, Batch, Points, cross_entropy_of, flat, sgd, vector_batches

BATCHES = vector_batches(5)
ONCE_A_CALL = [name for name in METHODS if name != "sampa-script"]


def normalized(momentum: float | None = 0.1) -> nn.Sequential:
    """BatchNorm sees the inputs, so that its statistics do not depend on the weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.BatchNorm1d(4, momentum=momentum), nn.Linear(4, 3)).double()


def frozen_statistics(model: nn.Module, with_model: bool) -> AbstractContextManager[None]:
    """A pass that does not count."""
    layers = Layers(model if with_model else None)
    return layers.one_pass(list(model.parameters()), counts=False)


def statistics(model: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
    (layer,) = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d)]
    assert layer.running_mean is not None
    assert layer.running_var is not None
    assert layer.num_batches_tracked is not None
    return layer.running_mean.clone(), layer.running_var.clone(), layer.num_batches_tracked.clone()


def train(
    name: str, momentum: float | None, with_model: bool, batches: list[Batch] = BATCHES
) -> tuple[Tensor, Tensor, Tensor]:
    model = normalized(momentum)
    executor = sampa.Serial(model) if with_model else None
    optimizer = METHODS[name](sgd(model), executor=executor)
    for batch in batches:
        optimizer.step(cross_entropy_of(model), batch)
    return statistics(model)


def plain_pass(momentum: float | None, batches: list[Batch]) -> tuple[Tensor, Tensor, Tensor]:
    model = normalized(momentum)
    for x, _ in batches:
        model(x)
    return statistics(model)


@pytest.mark.parametrize("with_model", [True, False])
@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("name", ONCE_A_CALL)
def test_statistics_are_those_of_one_pass_over_the_batches(
    name: str, momentum: float | None, with_model: bool
) -> None:
    """Mean, variance and count. `momentum=None` averages all batches, and divides by the count."""
    actual = train(name, momentum, with_model)
    for ours, plain in zip(actual, plain_pass(momentum, BATCHES), strict=True):
        assert torch.equal(ours, plain)


@pytest.mark.parametrize("with_model", [True, False])
def test_perturbed_statistics_of_sampa_lag_one_batch_behind(with_model: bool) -> None:
    """As in the published script a batch counts at x̃, when it is the held one."""
    actual = train("sampa-script", 0.1, with_model)
    for ours, plain in zip(actual, plain_pass(0.1, BATCHES[:-1]), strict=True):
        assert torch.equal(ours, plain)


def mean_after_linear(make: Callable[..., sampa.SharpnessAware], calls: int) -> list[Tensor]:
    """BatchNorm behind a linear layer: its running mean, and the batch mean at each point."""
    torch.manual_seed(0)
    linear, norm = nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=1.0)
    model = nn.Sequential(linear, norm, nn.Linear(4, 3)).double()
    optimizer = make(sgd(model))
    points = Points()  # of the layer's inputs: their mean
    inputs_of: list[Batch] = []
    norm.register_forward_pre_hook(
        lambda _, inputs: points.note(inputs[0].mean(0).detach(), inputs_of[-1])
    )

    def loss_fn(batch: Batch) -> Tensor:
        inputs_of.append(batch)
        return cross_entropy_of(model)(batch)

    for batch in BATCHES[:calls]:
        optimizer.step(loss_fn, batch)
    assert norm.running_mean is not None
    return [norm.running_mean, *points.on(BATCHES[calls - 1])]


def test_sam_counts_its_clean_pass() -> None:
    counted, clean, perturbed = mean_after_linear(sampa.SAM, calls=1)
    # BatchNorm sums in another order than `mean`; the two passes are 1e-3 apart.
    torch.testing.assert_close(counted, clean, rtol=0, atol=1e-15)
    assert (counted - perturbed).norm() > 1e-3


def test_sampa_counts_its_lookahead_pass() -> None:
    counted, lookahead = mean_after_linear(sampa.SAMPa, calls=2)
    torch.testing.assert_close(counted, lookahead, rtol=0, atol=1e-15)


@pytest.mark.parametrize("with_model", [True, False])
def test_frozen_pass_still_normalizes_with_its_own_batch(with_model: bool) -> None:
    model, twin = normalized(), normalized()
    x, _ = BATCHES[0]
    with frozen_statistics(model, with_model):
        frozen = model(x)
    assert torch.equal(frozen, twin(x))


@pytest.mark.parametrize("with_model", [True, False])
def test_frozen_pass_leaves_the_buffers_alone(with_model: bool) -> None:
    model = normalized(momentum=None)
    before = statistics(model)
    with frozen_statistics(model, with_model):
        model(BATCHES[0][0])
    for now, then in zip(statistics(model), before, strict=True):
        assert torch.equal(now, then)


@pytest.mark.parametrize("with_model", [True, False])
def test_freezing_inside_a_frozen_block_does_not_freeze_for_good(with_model: bool) -> None:
    model = normalized()
    with frozen_statistics(model, with_model), frozen_statistics(model, with_model):
        model(BATCHES[0][0])
    model(BATCHES[0][0])
    assert statistics(model)[2].item() == 1


@pytest.mark.parametrize("with_model", [True, False])
def test_layers_are_put_back_after_an_exception(with_model: bool) -> None:
    model = normalized()

    def fail() -> None:
        with frozen_statistics(model, with_model):
            model(BATCHES[0][0])
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert all(m.track_running_stats for m in model if isinstance(m, nn.BatchNorm1d))


def test_no_global_hook_stays_behind() -> None:
    before = dict(torch_module._global_forward_pre_hooks)
    with frozen_statistics(normalized(), with_model=False):
        pass
    assert dict(torch_module._global_forward_pre_hooks) == before


@pytest.mark.parametrize("with_model", [True, False])
def test_a_layer_in_evaluation_mode_keeps_using_its_running_statistics(with_model: bool) -> None:
    model = normalized().eval()
    x, _ = BATCHES[0]
    expected = model(x)
    with frozen_statistics(model, with_model):
        assert torch.equal(model(x), expected)


@pytest.mark.parametrize("with_model", [True, False])
def test_a_layer_without_running_statistics_gets_none(with_model: bool) -> None:
    layer = nn.BatchNorm1d(4, track_running_stats=False)
    with frozen_statistics(layer, with_model):
        layer(BATCHES[0][0].float())
    assert layer.track_running_stats is False


def test_statistics_do_not_change_the_weights_path() -> None:
    """Freezing is invisible to the gradient: with and without a known model, the same bits."""
    ends = []
    for with_model in (True, False):
        model = normalized()
        optimizer = sampa.SAM(sgd(model), executor=sampa.Serial(model) if with_model else None)
        for batch in BATCHES:
            optimizer.step(cross_entropy_of(model), batch)
        ends.append(flat(model))
    assert torch.equal(*ends)
