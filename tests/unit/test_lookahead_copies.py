"""What a lookahead copies, what it shares, and what it refuses."""

from __future__ import annotations

import copy
import gc
import random
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

import sampa
from sampa.execution import lookahead
from sampa.execution.lookahead import borrowed_state
from sampa.vectors.vector import clones
from tests.problems import cross_entropy_of, same_bits, tiny_mlp, vector_batches
from tests.unit.test_preview import gradients, peek, update


class Pair(NamedTuple):
    total: Tensor
    history: list[int]


class Box:
    def __init__(self) -> None:
        self.count = torch.zeros(1)
        self.seen: set[int] = set()


class Keeping(SGD):
    """Multiplies its learning rate by a number that it keeps where `keep` put it."""

    def __init__(self, model: nn.Module, keep: Callable[[Keeping], Any], add: Any) -> None:
        super().__init__(model.parameters(), lr=0.1, momentum=0.9)
        self.add = add
        keep(self)

    def step(self, closure: Any = None) -> None:
        factor = self.add(self)
        rate = self.param_groups[0]["lr"]
        self.param_groups[0]["lr"] = rate / (1 + factor)
        super().step(closure)
        self.param_groups[0]["lr"] = rate


def put(**attributes: Any) -> Callable[[Any], None]:
    return lambda base: vars(base).update(copy.deepcopy(attributes))


def put_in_state(value: Any) -> Callable[[Any], None]:
    return lambda base: base.state.update(whole=copy.deepcopy(value))


def add_to_deque(base: Any) -> int:
    base.kept.append(len(base.kept))
    return base.kept[-1]


def add_to_array(base: Any) -> float:
    base.kept += 1
    return float(base.kept[0])


def add_to_set(base: Any) -> int:
    base.kept.add(len(base.kept))
    return len(base.kept)


def add_to_pair(base: Any) -> float:
    base.kept.history.append(1)
    base.kept.total.add_(1)
    return float(base.kept.total) + len(base.kept.history)


def add_to_box(base: Any) -> float:
    base.kept.count.add_(1)
    base.kept.seen.add(len(base.kept.seen))
    return float(base.kept.count) + len(base.kept.seen)


def add_to_number(base: Any) -> int:
    base.kept += 1
    return base.kept


def add_to_state(base: Any) -> float:
    base.state["whole"] += 1
    return float(base.state["whole"])


def add_to_alias(base: Any) -> float:
    """Two names of one tensor, in two containers: written by one, read by the other."""
    base.kept[0].add_(1)
    return float(base.same[0])


def add_to_view(base: Any) -> float:
    base.kept[1].add_(1)
    return float(base.kept[0].sum())


def draw(base: Any) -> float:
    return float(torch.rand(())) + random.random() + float(np.random.rand())


def with_alias(base: Any) -> None:
    shared = torch.zeros(1)
    base.kept, base.same = [shared], deque([shared])


def with_view(base: Any) -> None:
    whole = torch.zeros(4)
    base.kept = [whole, whole[1:2].detach()]


def with_view_of_a_weight(base: Any) -> None:
    base.kept = [p.data.view(-1) for p in base.param_groups[0]["params"]]


def add_to_view_of_a_weight(base: Any) -> float:
    base.kept[0].add_(0.5)
    return 0.0


KEPT: dict[str, tuple[Callable[[Any], Any], Callable[[Any], float]]] = {
    "a deque": (put(kept=deque([1])), add_to_deque),
    "an array": (put(kept=np.zeros(2)), add_to_array),
    "a set": (put(kept={1, 2}), add_to_set),
    "a named tuple": (put(kept=Pair(torch.zeros(1), [])), add_to_pair),
    "an object": (put(kept=Box()), add_to_box),
    "a counter": (put(kept=0), add_to_number),
    "a number as an entry of the state": (put_in_state(0), add_to_state),
    "a tensor as an entry of the state": (put_in_state(torch.zeros(1)), add_to_state),
    "an array as an entry of the state": (put_in_state(np.zeros(())), add_to_state),
    "one tensor under two names": (with_alias, add_to_alias),
    "a view of another tensor": (with_view, add_to_view),
    "a view of a weight": (with_view_of_a_weight, add_to_view_of_a_weight),
    "random numbers": (put(), draw),
}
every_kind = pytest.mark.parametrize("kind", KEPT)


def used(kind: str, steps: int) -> tuple[nn.Module, Keeping]:
    keep, add = KEPT[kind]
    model = tiny_mlp()
    base = Keeping(model, keep, add)
    for i in range(steps):
        update(base, model, gradients(model, i))
    return model, base


def seed_all() -> None:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)


@every_kind
def test_a_peek_visits_the_weights_of_the_step(kind: str) -> None:
    for steps in range(4):
        seed_all()
        other, its_base = used(kind, steps)
        expected = update(its_base, other, gradients(other, 9))
        seed_all()
        model, base = used(kind, steps)
        assert same_bits(peek(base, model, gradients(model, 9)), expected)


@every_kind
def test_peeks_change_no_later_step(kind: str) -> None:
    seed_all()
    other, _ = used(kind, 4)
    seed_all()
    model, base = used(kind, 0)
    for i in range(4):
        peek(base, model, gradients(model, 9))
        update(base, model, gradients(model, i))
    assert same_bits(list(model.parameters()), list(other.parameters()))


def test_attributes_that_a_step_makes_are_removed() -> None:
    model = tiny_mlp()
    base = Keeping(model, put(), lambda base: vars(base).setdefault("made", 1))
    peek(base, model, gradients(model, 0))
    assert not hasattr(base, "made")


class Around(Optimizer):
    """An optimizer around another, with its groups and its state."""

    def __init__(self, inner: Optimizer) -> None:
        self.inner = inner
        self.defaults = inner.defaults
        Optimizer.__setstate__(self, {})

    @property
    def param_groups(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.param_groups

    @property
    def state(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.state

    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.inner.step()


def test_an_optimizer_inside_the_base_is_left_alone_too() -> None:
    model = tiny_mlp()
    inner = SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(inner, 1)
    calls: list[str] = []
    inner.register_step_post_hook(lambda *_: calls.append("step"))
    base = Around(inner)
    update(base, model, gradients(model, 0))
    before = copy.deepcopy(inner.state_dict())
    visited = peek(base, model, gradients(model, 9))
    assert same_bits(inner.state_dict(), before)
    assert calls == ["step"]
    assert same_bits(update(base, model, gradients(model, 9)), visited)
    scheduler.step()


# ---- what cannot be put back is refused ----------------------------------------------------------


class CountsInItsClass(SGD):
    steps = [0]  # noqa: RUF012 (that is what is tested)

    def step(self, closure: Any = None) -> None:
        self.steps[0] += 1
        super().step(closure)


def count_in_a_parameter(base: Any) -> float:
    p = base.param_groups[0]["params"][0]
    p.steps = getattr(p, "steps", 0) + 1
    return 0.0


class Shared:
    """Insists on being shared by copies."""

    def __init__(self) -> None:
        self.count = torch.zeros(1)

    def __deepcopy__(self, memo: Any) -> Shared:
        return self


def count_in_shared(base: Any) -> float:
    base.kept.count.add_(1)
    return 0.0


def with_shared(base: Any) -> None:
    base.kept = Shared()


def with_module(base: Any) -> None:
    base.kept = nn.BatchNorm1d(2)


def count_in_module(base: Any) -> float:
    base.kept.num_batches_tracked.add_(1)
    return 0.0


CHANGED: dict[str, tuple[Callable[[nn.Module], Optimizer], str]] = {
    "class": (
        lambda model: CountsInItsClass(model.parameters(), lr=0.1),
        r"changed class CountsInItsClass\.steps\[0\]",
    ),
    "parameter": (
        lambda model: Keeping(model, put(), count_in_a_parameter),
        r"changed parameter 0\.steps",
    ),
    "object": (
        lambda model: Keeping(model, with_shared, count_in_shared),
        r"changed Keeping\.kept\.count",
    ),
    "module": (
        lambda model: Keeping(model, with_module, count_in_module),
        r"changed Keeping\.kept\.num_batches_tracked",
    ),
}


@pytest.mark.parametrize("kind", CHANGED)
def test_a_change_that_cannot_be_undone_is_named(kind: str) -> None:
    build, message = CHANGED[kind]
    model = tiny_mlp()
    with pytest.raises(RuntimeError, match=message):
        peek(build(model), model, gradients(model, 0))


def test_a_change_in_the_first_step_with_state_is_named_too() -> None:
    def count_later(base: Any) -> float:
        return count_in_shared(base) if base.state else 0.0

    model = tiny_mlp()
    base = Keeping(model, with_shared, count_later)
    peek(base, model, gradients(model, 0))
    update(base, model, gradients(model, 0))
    with pytest.raises(RuntimeError, match=r"changed Keeping\.kept\.count"):
        peek(base, model, gradients(model, 1))


def test_what_cannot_be_copied_is_named() -> None:
    def with_generator(base: Any) -> None:
        base.rates = (0.1 * i for i in range(9))

    model = tiny_mlp()
    base = Keeping(model, with_generator, lambda base: next(base.rates))
    with pytest.raises(RuntimeError, match=r"Keeping\.rates cannot be copied.*__deepcopy__"):
        peek(base, model, gradients(model, 0))


def test_a_refused_peek_leaves_weights_where_they_were() -> None:
    model = tiny_mlp()
    optimizer = sampa.SAMPa(CHANGED["class"][0](model))
    batches = vector_batches(2)
    optimizer.step(cross_entropy_of(model), batches[0])
    before = copy.deepcopy(list(model.parameters()))
    with pytest.raises(RuntimeError, match="CountsInItsClass"):
        optimizer.step(cross_entropy_of(model), batches[1])
    assert same_bits(list(model.parameters()), before)


def test_what_is_known_of_an_optimizer_does_not_keep_it_alive() -> None:
    model = tiny_mlp()
    base = SGD(model.parameters(), lr=0.1)
    base.itself = base  # pyright: ignore[reportAttributeAccessIssue]
    peek(base, model, gradients(model, 0))
    gone = weakref.ref(base)
    del base
    gc.collect()
    assert gone() is None


def test_plain_tensors_are_copied_by_one_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_mlp()
    base = torch.optim.AdamW(model.parameters())
    update(base, model, gradients(model, 0))
    counts: list[int] = []

    def counted(tensors: list[Tensor]) -> Sequence[Tensor]:
        counts.append(len(tensors))
        return clones(tensors)

    monkeypatch.setattr(lookahead, "clones", counted)
    with borrowed_state(base):
        pass
    assert counts == [3 * len(list(model.parameters()))]
