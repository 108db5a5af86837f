"""A batch that was changed between its passes is refused, or was copied before."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sampa
from sampa.batches import Watched
from tests.problems import same_bits

Loader = Callable[[int], Iterator[Any]]
REFUSED = r"the batch was changed after step had received it.*pass hold=\"copy\""


def samples(steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        yield torch.randn(8, 3, generator=generator), torch.randint(0, 2, (8,), generator=generator)


@dataclass
class Labeled:
    x: Any
    y: Any


def into_a_tensor(steps: int) -> Iterator[Any]:
    """A loader that fills the same tensors again and again."""
    x, y = torch.empty(8, 3), torch.empty(8, dtype=torch.int64)
    for new_x, new_y in samples(steps):
        yield x.copy_(new_x), y.copy_(new_y)


def into_shared_memory(steps: int) -> Iterator[Any]:
    """One that torch does not see writing."""
    x, y = np.empty((8, 3), np.float32), np.empty(8, np.int64)
    for new_x, new_y in samples(steps):
        x[:], y[:] = new_x, new_y
        yield torch.from_numpy(x), torch.from_numpy(y)


def into_an_array(steps: int) -> Iterator[Any]:
    x = np.empty((8, 3), np.float32)
    for new_x, new_y in samples(steps):
        x[:] = new_x
        yield Labeled(x, new_y)


def into_a_slot(steps: int) -> Iterator[Any]:
    """Parts of larger memory, of which the one that is held is overwritten as well."""
    ring = torch.empty(2, 8, 3)
    for new_x, new_y in samples(steps):
        ring.copy_(new_x.expand(2, 8, 3))
        yield ring[0], new_y


def into_a_dictionary(steps: int) -> Iterator[Any]:
    """The same container with new tensors."""
    batch: dict[str, Any] = {}
    for new_x, new_y in samples(steps):
        batch["x"], batch["y"] = new_x, [new_y]
        yield batch


def new_memory(steps: int) -> Iterator[Any]:
    yield from samples(steps)


def into_two_slots(steps: int) -> Iterator[Any]:
    """Parts of larger memory, of which the one that is held is left alone."""
    ring = torch.empty(2, 8, 3)
    for number, (new_x, new_y) in enumerate(samples(steps)):
        ring[number % 2].copy_(new_x)
        yield ring[number % 2], new_y


def taken_apart(batch: Any) -> tuple[Tensor, Tensor]:
    if isinstance(batch, dict):
        x, (y,) = batch["x"], batch["y"]
    elif isinstance(batch, Labeled):
        x, y = batch.x, batch.y
    else:
        x, y = batch
    return torch.as_tensor(x), torch.as_tensor(y)


def plain_loss(model: nn.Module, batch: Any) -> Tensor:
    x, y = taken_apart(batch)
    return F.cross_entropy(model(x), y)


def loss_in_place(model: nn.Module, batch: Any) -> Tensor:
    x, y = taken_apart(batch)
    return F.cross_entropy(model(x.mul_(2)), y)


def doubled_loss(model: nn.Module, batch: Any) -> Tensor:
    x, y = taken_apart(batch)
    return F.cross_entropy(model(x * 2), y)


def loss_that_takes_out(model: nn.Module, batch: Any) -> Tensor:
    x, y = batch.pop("x"), batch.pop("y")
    return F.cross_entropy(model(x), y[0])


def trained(
    loader: Loader,
    make: Callable[..., sampa.SharpnessAware] = sampa.SAMPa,
    loss: Callable[[nn.Module, Any], Tensor] = plain_loss,
    steps: int = 6,
    **options: Any,
) -> list[Tensor]:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = make(base, rho=0.1, **options)
    for batch in loader(steps):
        optimizer.step(lambda b: loss(model, b), batch)
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("loader", [into_a_tensor, into_shared_memory, into_an_array, into_a_slot])
def test_a_loader_that_refills_its_memory_is_refused_or_copied(loader: Loader) -> None:
    with pytest.raises(RuntimeError, match=REFUSED):
        trained(loader)
    assert same_bits(trained(loader, hold="copy"), trained(new_memory))


@pytest.mark.parametrize("loader", [into_a_dictionary, into_two_slots])
@pytest.mark.parametrize("hold", ["reference", "copy"])
def test_a_loader_that_leaves_the_held_tensors_alone_may_do_what_it_likes(
    loader: Loader, hold: str
) -> None:
    assert same_bits(trained(loader, hold=hold), trained(new_memory))


def test_a_loss_fn_that_works_in_place_is_refused_where_the_batch_is_used_again() -> None:
    with pytest.raises(RuntimeError, match=REFUSED):
        trained(new_memory, loss=loss_in_place)
    with pytest.raises(RuntimeError, match="evaluates it again in the same step; let loss_fn"):
        trained(new_memory, sampa.SAM, loss_in_place)


def test_a_loss_fn_that_works_in_place_on_a_part_of_a_batch_is_refused() -> None:
    """Micro-batches are views of the batch."""
    with pytest.raises(RuntimeError, match=REFUSED):
        trained(new_memory, loss=loss_in_place, accumulate=2)


def test_a_copy_is_made_before_loss_fn_sees_the_batch() -> None:
    in_place = trained(new_memory, loss=loss_in_place, hold="copy")
    assert same_bits(in_place, trained(new_memory, loss=doubled_loss))


def test_a_loss_fn_may_take_entries_out_of_a_batch_that_is_held() -> None:
    def dictionaries(steps: int) -> Iterator[Any]:
        for x, y in samples(steps):
            yield {"x": x, "y": [y]}

    assert same_bits(trained(dictionaries, loss=loss_that_takes_out), trained(new_memory))


def test_a_single_pass_may_work_in_place() -> None:
    weights = trained(new_memory, sampa.MomentumSAM, loss_in_place)
    assert same_bits(weights, trained(new_memory, sampa.MomentumSAM, doubled_loss))


def test_what_is_refused_has_changed_nothing() -> None:
    model = nn.Linear(3, 2)
    optimizer = sampa.SAMPa(torch.optim.SGD(model.parameters(), lr=0.1))
    batches = [*samples(3)]
    for batch in batches[:2]:
        optimizer.step(lambda b: plain_loss(model, b), batch)
    before = copy.deepcopy(model.state_dict())
    batches[1][0].zero_()
    with pytest.raises(RuntimeError, match=r"its Tensor of shape \(8, 3\)"):
        optimizer.step(lambda b: plain_loss(model, b), batches[2])
    with pytest.raises(RuntimeError, match=REFUSED):
        optimizer.state_dict()  # it would be saved in place of the batch that was held
    assert same_bits(before, model.state_dict())


def test_copies_of_an_optimizer_go_on_with_copies_of_the_batch() -> None:
    model = nn.Linear(3, 2)
    optimizer = sampa.SAMPa(torch.optim.SGD(model.parameters(), lr=0.1))
    batch = next(samples(1))
    batch[0].add_(1)  # a tensor that was written to before
    optimizer.step(lambda b: plain_loss(model, b), batch)
    both = copy.deepcopy((model, optimizer))
    batch[0].zero_()  # not the copy's
    both[1].step(lambda b: plain_loss(both[0], b), batch)


def resumed(spoil: bool) -> list[Tensor]:
    """The weights after a step on a batch that was handed back, and perhaps changed then."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = sampa.SAMPa(base, save_batch=False, hold="copy")
    first, second = samples(2)
    optimizer.step(lambda b: plain_loss(model, b), first)
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.hold(first)
    if spoil:
        first[0].zero_()
    optimizer.step(lambda b: plain_loss(model, b), second)
    return [p.detach().clone() for p in model.parameters()]


def test_a_batch_that_is_handed_back_is_copied_where_that_is_asked_for() -> None:
    assert same_bits(resumed(spoil=True), resumed(spoil=False))


@pytest.mark.parametrize("hold", ["refernce", None])
def test_another_way_to_hold_is_refused(hold: Any) -> None:
    with pytest.raises(ValueError, match="hold must be one of 'reference', 'copy'"):
        sampa.SAMPa(torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1), hold=hold)


# ---- what is noticed -----------------------------------------------------------------------------

KINDS: dict[str, Callable[[], Any]] = {
    "float32": lambda: torch.ones(8, 3),
    "large": lambda: torch.ones(64, 3, 32, 32),
    "bfloat16": lambda: torch.ones(8, dtype=torch.bfloat16),
    "float8": lambda: torch.ones(8).to(torch.float8_e4m3fn),
    "bool": lambda: torch.ones(8, dtype=torch.bool),
    "complex": lambda: torch.ones(8, dtype=torch.complex64),
    "conjugate": lambda: torch.ones(8, dtype=torch.complex64).conj(),
    "scalar": lambda: torch.tensor(1.0),
    "transposed": lambda: torch.ones(8, 3).t(),
    "sparse": lambda: torch.ones(8, 3).to_sparse(),
    "array": lambda: np.ones((8, 3)),
    "bytes": lambda: bytearray(b"abc"),
    "an inference tensor": lambda: in_inference_mode(),
}


def in_inference_mode() -> Tensor:
    with torch.inference_mode():
        return torch.ones(8, 3)


def spoil(data: Any) -> None:
    if isinstance(data, bytearray):
        data[1] = 0
    elif isinstance(data, np.ndarray):
        data[-1, -1] = 0
    else:
        with torch.inference_mode(data.is_inference()):
            data.zero_()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_is_watched(kind: str) -> None:
    data = KINDS[kind]()
    watched = Watched({"x": [data]})
    watched.require_unchanged("needs it")
    spoil(data)
    with pytest.raises(RuntimeError, match=r"the batch was changed.*but the method needs it"):
        watched.require_unchanged("needs it")


@pytest.mark.parametrize("spoiled", [0, 1, 499])
def test_each_of_many_arrays_is_watched(spoiled: int) -> None:
    arrays = [np.ones((8, 3)) for _ in range(500)]
    watched = Watched(arrays)
    watched.require_unchanged("needs it")
    arrays[spoiled][:] = 0
    with pytest.raises(RuntimeError, match=r"the batch was changed"):
        watched.require_unchanged("needs it")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_is_copied(kind: str) -> None:
    data = KINDS[kind]()
    before = copy.copy(data) if not isinstance(data, Tensor) else data.clone()
    held = Watched({"x": [data, [data]]}).kept("copy")
    spoil(data)
    found = held.batch["x"][0]
    assert type(found) is type(data)
    assert str(found) == str(before)
    held.require_unchanged("needs it")


def test_a_copy_of_a_part_of_large_memory_is_small() -> None:
    held = Watched((torch.ones(1000, 10)[:2],)).kept("copy")
    assert held.batch[0].untyped_storage().nbytes() == 80


def test_a_batch_that_cannot_be_copied_is_refused_by_the_type_of_what_cannot() -> None:
    class Alone:
        def __init__(self) -> None:
            self.x = torch.ones(2)

        def __getstate__(self) -> Any:
            return self.__dict__

        def __deepcopy__(self, memo: Any) -> Any:
            raise NotImplementedError

    with pytest.raises(TypeError, match=r'hold="copy" needs a batch that can be copied.*Alone'):
        Watched({"x": Alone()}).kept("copy")
    held = Watched(batch := {"x": Alone()}).kept("reference")
    assert held.batch["x"].x is batch["x"].x


def test_a_held_batch_keeps_its_types() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    for batch in (transformers.BatchEncoding({"x": torch.ones(2)}), Labeled(torch.ones(2), [1])):
        for hold in ("reference", "copy"):
            held = Watched(batch).kept(hold).batch
            assert type(held) is type(batch)
            assert held is not batch
            assert (held.x is batch.x) == (hold == "reference")
