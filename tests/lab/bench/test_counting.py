"""What a GPU would suffer from, on fake CUDA tensors: waits, launches, views, buffers alive."""

from __future__ import annotations

import math

import pytest
from torch import Tensor

from sampa.lab.bench.counting import count_reduction, count_step
from sampa.lab.bench.own_cost import Shapes
from sampa.lab.models import build
from sampa.vectors.reductions import global_norms, inner_product
from sampa.vectors.vector import Vector, scale
from tests.marks import rest_is_slow

FEW = [(8, 3), (8,), (2, 8), (2,)]


def transformer(width: int, blocks: int) -> Shapes:
    block = [(3 * width, width), (3 * width,), (width, width), (4 * width, width)]
    return [(1000, width), *[*block, (4 * width,), (width, 4 * width), *[(width,)] * 6] * blocks]


MODELS = {
    "resnet20": [tuple(p.shape) for p in build("resnet20").parameters()],
    "resnet56": [tuple(p.shape) for p in build("resnet56").parameters()],
    "vit-b": transformer(768, 12),
    "1b": [*transformer(1024, 79), *[(128,)] * 2850],
}

# Those whose next gradient depends on a number of this step: AE-SAM on the gradient's norm.
DECIDE_BY_A_VALUE = {"ae-sam": 2}
WITHOUT_A_DECISION = [
    *("base", "sam", "sampa", "optgd", "optsam", "sam-db", "asam", "msam", "vasso", "looksam"),
    *("gsam", "friendly-sam", "momentum-sam", "fisher-sam", "wsam", "multi-step-sam", "randsam"),
    *("penalty", "rst", "async-sam"),
]


@pytest.mark.parametrize("base", ["sgd", "adamw"])
@pytest.mark.parametrize("method", WITHOUT_A_DECISION)
def test_the_host_waits_once_in_a_step(method: str, base: str) -> None:
    assert count_step(method, FEW, base).waits == 1


@pytest.mark.parametrize("method", rest_is_slow(WITHOUT_A_DECISION, "sam", "sampa"))
def test_a_model_on_two_devices_in_one_process_steps_and_waits_no_more(method: str) -> None:
    """Fake tensors know their device: arithmetic between two of them would raise."""
    assert count_step(method, FEW, "adamw", devices=2, max_norm=1.0).waits == 1


@pytest.mark.parametrize("method", ["base", "sam", "sampa", "asam", "vasso", "gsam", "looksam"])
def test_on_two_devices_late_checks_never_wait(method: str) -> None:
    assert count_step(method, FEW, "adamw", devices=2, checks="late").waits == 0


@pytest.mark.parametrize("method", DECIDE_BY_A_VALUE)
def test_a_decision_by_a_value_is_one_more_wait(method: str) -> None:
    assert count_step(method, FEW).waits == DECIDE_BY_A_VALUE[method]


@pytest.mark.parametrize("method", ["base", "sam", "sampa", "asam", "vasso", "gsam", "looksam"])
def test_with_late_checks_the_host_never_waits(method: str) -> None:
    assert count_step(method, FEW, "adamw", checks="late").waits == 0


@pytest.mark.parametrize(
    ("method", "base", "buffers"),
    [
        ("sampa", "sgd", 6),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("sam", "sgd", 5),
                ("sam", "adamw", 6),
                ("sampa", "adamw", 7),
                ("sam", "adamw-foreach", 6),
                ("sampa", "adamw-foreach", 8),
            )
        ),
    ],
)
def test_parameter_sized_buffers_alive(method: str, base: str, buffers: int) -> None:
    """SAM with momentum: the weights, the saved ones, momentum and two gradients."""
    count = count_step(method, MODELS["resnet56"], base)
    assert count.buffers == pytest.approx(buffers, abs=0.05)
    assert count.strided == 0


@pytest.mark.parametrize("model", rest_is_slow(MODELS, "resnet20", "resnet56", "vit-b"))
def test_launches_of_a_norm_and_a_product(model: str) -> None:
    shapes = MODELS[model]
    size = sum(math.prod(shape) for shape in shapes)
    most = math.ceil(size / 20e6) + math.ceil(len(shapes) / 30) + 3
    assert count_reduction(lambda ts: global_norms([ts])[0], shapes).launches <= most
    product = count_reduction(lambda ts: inner_product(list(zip(ts, ts, strict=True))), shapes)
    assert product.launches <= most
    if len(shapes) > 100:  # a joined copy is smaller than the parameters
        assert product.buffers < 2


def test_a_product_of_weights_with_channels_last_copies_none_of_them() -> None:
    shapes = [shape for shape in MODELS["resnet20"] if len(shape) == 4]
    in_memory = [(o, h, w, i) for o, i, h, w in shapes]

    def product(tensors: list[Tensor]) -> Tensor:
        return inner_product([(t, t) for t in tensors])

    def with_channels_last(tensors: list[Tensor]) -> Tensor:
        return product([t.permute(0, 3, 1, 2) for t in tensors])

    expected = count_reduction(product, shapes).launches
    assert count_reduction(with_channels_last, in_memory).launches == expected


def test_a_number_that_is_read_counts_as_a_wait_and_a_copy_as_a_buffer() -> None:
    def twice(tensors: list[Tensor]) -> Vector:
        return scale(Vector(tensors), 2.0)

    count = count_reduction(twice, FEW)
    assert (count.launches, count.buffers) == (1, 2)
