"""A step is made as a whole or not at all: no bad gradient gets in, and no signal cuts it in two.

Whether a gradient is bad is decided on the device, so that the host need not wait for it. torch's
fused optimizers leave weights and state alone where their `found_inf` is not zero; it was made for
loss scaling. Bases that keep all of their state on the device (`capturable=True`) are put back by a
selection instead, at the price of a copy.

An exception that a signal's handler raises may come between any two instructions, also between
a change and the note that it must be undone, or in the middle of the base optimizer's update. So
handlers run before or after a step.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import islice
from types import FrameType
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.optim import SGD, Muon, Optimizer

from sampa.execution.layers import Buffer, Layers, put_back
from sampa.execution.lookahead import bases_of
from sampa.method import Method, Move
from sampa.torch_private import TAKES_FOUND_INF, tree_leaves, write_count
from sampa.vectors.vector import Weights, local

P = ParamSpec("P")
R = TypeVar("R")


def honors_found_inf(base: Optimizer) -> bool:
    """Whether the base optimizer itself can leave everything alone after a bad gradient."""
    return all(map(_honors_found_inf, bases_of(base)))


def _honors_found_inf(base: Optimizer) -> bool:
    if not getattr(base, TAKES_FOUND_INF, False):
        return False
    # Fused SGD leaves uninitialized memory as momentum if its first step is a bad one, so the
    # momentum is made here; with dampening a first step is not the same as one from zero.
    return not (isinstance(base, SGD) and any(group["dampening"] for group in base.param_groups))


def keeps_state_on_device(base: Optimizer) -> bool:
    """Whether a decision on the device reaches all of its state, counters included."""
    return all(
        isinstance(one, Muon)  # it has a momentum and counts nothing
        or _honors_found_inf(one)
        or all(group.get("capturable", False) for group in one.param_groups)
        for one in bases_of(base)
    )


def require_late_checks(base: Optimizer, method: Method) -> None:
    """Refuse a base optimizer or a method that keeps what it learns on the host.

    Raises:
        ValueError: Naming what to write instead.
    """
    if getattr(method, "writes_records", False):
        raise ValueError(
            "checks='late' needs a method whose state can go back behind a bad step, got "
            f"{type(method).__name__}, which has written its records before the host learns of "
            "one; write checks='now', or leave it out"
        )
    if not honors_found_inf(base) and not keeps_state_on_device(base):
        raise ValueError(
            "checks='late' needs a base optimizer that keeps all of its state on the device, got "
            f"{type(base).__name__}; build it with fused=True (SGD without dampening, Adam, AdamW, "
            "Adagrad) or capturable=True, or leave out checks='late'"
        )


def step_unless(
    is_bad: Tensor, base: Optimizer, weights: Weights, then: Move | None = None
) -> None:
    """`base.step()` and what follows it, which change nothing where the flag is true."""
    if then is None and honors_found_inf(base):
        bases: list[Any] = bases_of(base)
        for one in bases:
            _make_momentum(one)
            one.found_inf = is_bad.to(torch.float32)
        try:
            base.step()
        finally:
            for one in bases:
                del one.found_inf
        return
    trained = [p for p in weights if p.grad is not None]
    if any(not base.state.get(p) for p in trained) and is_bad.item():
        return  # there is nothing to go back to before the first step: the host waits, once
    before = [(t, t.clone()) for t in local([*trained, *_state(base)])]
    base.step()
    with torch.no_grad():
        if then is not None:
            then(local(weights))
        for t, saved in before:
            t.copy_(torch.where(is_bad, saved, t))


def _make_momentum(base: Optimizer) -> None:
    for group in base.param_groups:
        if isinstance(base, SGD) and group["momentum"]:
            for p in group["params"]:
                if p.grad is not None and base.state[p].get("momentum_buffer") is None:
                    base.state[p]["momentum_buffer"] = torch.zeros_like(p)


def _state(base: Optimizer) -> list[Tensor]:
    return [t for t in tree_leaves(dict(base.state)) if isinstance(t, Tensor)]


class Checks:
    """The host learns in the same step whether a gradient is bad: where it can, after the update.

    Attributes:
        is_late: Whether it learns in the next step instead.
    """

    is_late = False

    def begin(self, *, carries_state: bool) -> None:
        """Called before a step."""

    def flag(self, is_bad: Tensor) -> Tensor:
        """Whether a step must change nothing, from whether its own gradients are bad."""
        return is_bad

    def update(
        self,
        is_bad: Tensor,
        is_finite: Callable[[], bool],
        base: Optimizer,
        weights: Weights,
        then: Move | None,
    ) -> None:
        """Make the update from the gradients in `.grad`, unless one was bad.

        Args:
            is_bad: The flag, on the device.
            is_finite: The opposite on the host, which waits for it.
            base: The base optimizer.
            weights: Its parameters.
            then: What follows its step.
        """
        if self.is_late or (then is None and honors_found_inf(base)):
            step_unless(is_bad, base, weights, then)
        elif is_finite():
            base.step()
            if then is not None:
                with torch.no_grad():
                    then(local(weights))

    def go_back(self) -> None:
        """The host has learned of a bad step, and has put the method's state right."""


class LateChecks(Checks):
    """The host learns of a bad step in the next one, and never waits.

    A method's state may hold what a bad gradient left (SAMPa's next direction), so the next step is
    bad too, whatever its own gradients are; the host then goes back behind both.
    """

    is_late = True

    def __init__(self, base: Optimizer, method: Method, layers: Layers) -> None:
        require_late_checks(base, method)
        self._layers = layers
        self._carries_state = False
        self._spoiled: Tensor | None = None  # whether the method's state is
        self._buffers: list[Buffer] = []

    def begin(self, *, carries_state: bool) -> None:
        # Passes at spoiled weights must not count in BatchNorm's statistics.
        self._carries_state = carries_state
        self._buffers = self._layers.saved_buffers() if carries_state else []

    def flag(self, is_bad: Tensor) -> Tensor:
        is_bad = is_bad if self._spoiled is None else is_bad | self._spoiled
        self._spoiled = is_bad if self._carries_state else None
        return is_bad

    def go_back(self) -> None:
        if self._spoiled is not None:
            put_back(self._buffers)
        self._spoiled = None


# ---- signals -----------------------------------------------------------------------------------

HELD_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
"""Requests to stop or to save, whose handlers raise or look at the model. Not SIGALRM: it is set to
end what takes too long."""


def uninterrupted(function: Callable[P, R]) -> Callable[P, R]:
    """Let Python's signal handlers run before or after the function, never inside.

    A second signal of the same kind goes through at once. Only the main thread can do that, and
    only it runs handlers.
    """

    @wraps(function)
    def held(*args: P.args, **named: P.kwargs) -> R:
        if threading.current_thread() is not threading.main_thread():
            return function(*args, **named)
        signals = HeldSignals()
        try:
            try:
                signals.hold()
                return function(*args, **named)
            finally:
                signals.release()
        finally:
            signals.release()  # once more, if a second signal came before that had begun

    return held


class HeldSignals:
    """Takes the place of the handlers that were written in Python, and calls them later."""

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._pending: set[int] = set()

    def hold(self) -> None:
        for number in HELD_SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler  # noted before it is replaced
                signal.signal(number, self._note)

    def release(self) -> None:
        """Give all handlers back, then let those run whose signal came."""
        try:
            self._give_back()
        finally:
            self._deliver()

    def _give_back(self) -> None:
        try:
            for number, handler in self._handlers.items():
                if signal.getsignal(number) == self._note:  # else loss_fn has set another one
                    signal.signal(number, handler)
        except BaseException:  # one that is back already was called, and raised
            self._give_back()
            raise

    def _deliver(self) -> None:
        if self._pending:
            try:
                signal.raise_signal(self._pending.pop())
            finally:
                self._deliver()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number in self._pending:
            self._pending.remove(number)
            self._handlers[number](number, frame)
        else:
            self._pending.add(number)


class Watch:
    """Finds what writes to the weights while a gradient is computed: it would be lost at x_t.

    An optimizer that steps in backward does so in every pass, so that all weights are looked at in
    the first one, and two of them later.
    """

    def __init__(self) -> None:
        self._known = -1  # how many weights there were in the last pass

    @contextmanager
    def unmoved(self, weights: Weights) -> Iterator[None]:
        """Raise if the block wrote to the weights."""
        is_first, self._known = len(weights) != self._known, len(weights)
        ends = (weights,) if is_first else (weights, reversed(weights))
        most = None if is_first else 1
        watched = [p for end in ends for p in islice((p for p in end if p.requires_grad), most)]
        before = [*map(write_count, watched)]
        yield
        if before != [*map(write_count, watched)]:
            raise RuntimeError(
                "the weights must stay as they are while a gradient is computed, and something "
                "wrote to them: an optimizer in a gradient hook (one that steps during backward), "
                "or loss_fn itself; remove it, and give that optimizer to sampa as the base"
            )
