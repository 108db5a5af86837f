"""Ctrl-C and its kin inside a step: nothing is left half-done, and the request is carried out."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

import sampa
from sampa.execution.guarded import HeldSignals
from sampa.flatness.surface import Surface
from tests.problems import Batch, cross_entropy_of, flat, sgd, tiny_mlp, vector_batches

HELD = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
FIRST, SECOND = vector_batches(2)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in HELD}
    yield
    after = {number: signal.getsignal(number) for number in HELD}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == before


def training(
    disturb: Callable[[], Any] = lambda: None,
) -> tuple[torch.nn.Module, sampa.SharpnessAware, Callable[[Batch], torch.Tensor]]:
    """SAMPa after one step, and a loss that is disturbed each time it is called."""
    model = tiny_mlp()
    optimizer = sampa.SAMPa(sgd(model), seed=0)
    loss_of = cross_entropy_of(model)
    optimizer.step(loss_of, FIRST)

    def loss_fn(batch: Batch) -> torch.Tensor:
        disturb()
        return loss_of(batch)

    return model, optimizer, loss_fn


def undisturbed() -> torch.Tensor:
    model, optimizer, loss_fn = training()
    optimizer.step(loss_fn, SECOND)
    return flat(model)


class Pressed:
    """Sends a signal to this process the first `times` times it is called."""

    def __init__(self, number: int, times: int = 1) -> None:
        self.number, self.left = number, times

    def __call__(self) -> None:
        if self.left:
            self.left -= 1
            os.kill(os.getpid(), self.number)


def test_ctrl_c_waits_for_the_end_of_the_step() -> None:
    model, optimizer, loss_fn = training(Pressed(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        optimizer.step(loss_fn, SECOND)
    assert torch.equal(flat(model), undisturbed())
    assert optimizer.last is not None
    assert optimizer.last.step == 1


@pytest.mark.parametrize("number", HELD[1:])
def test_handlers_of_the_user_run_after_the_step_once(number: int) -> None:
    model, optimizer, loss_fn = training(Pressed(number))
    seen: list[torch.Tensor] = []
    before = signal.signal(number, lambda *_: seen.append(flat(model)))
    optimizer.step(loss_fn, SECOND)
    signal.signal(number, before)
    assert len(seen) == 1
    assert torch.equal(seen[0], undisturbed())


def test_a_second_ctrl_c_goes_through_and_the_weights_come_back() -> None:
    model, optimizer, loss_fn = training(Pressed(signal.SIGINT, times=2))
    start = flat(model)
    with pytest.raises(KeyboardInterrupt):
        optimizer.step(loss_fn, SECOND)
    assert torch.equal(flat(model), start)


def test_a_handler_that_loss_fn_sets_stays() -> None:
    def own(*_: Any) -> None: ...

    before = signal.getsignal(signal.SIGUSR1)
    _, optimizer, loss_fn = training(lambda: signal.signal(signal.SIGUSR1, own))
    optimizer.step(loss_fn, SECOND)
    assert signal.getsignal(signal.SIGUSR1) is own
    signal.signal(signal.SIGUSR1, before)


def test_all_requests_are_carried_out_though_the_first_handler_raises() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))

    def press() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGUSR1)

    pressed = iter([press])
    _, optimizer, loss_fn = training(lambda: next(pressed, lambda: None)())
    with pytest.raises(KeyboardInterrupt):
        optimizer.step(loss_fn, SECOND)
    signal.signal(signal.SIGUSR1, before)
    assert seen == [1]


def test_an_error_in_the_step_is_raised_with_the_interrupt() -> None:
    def fail() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        raise ValueError("the loss is ill")

    _, optimizer, loss_fn = training(fail)
    with pytest.raises(KeyboardInterrupt) as caught:
        optimizer.step(loss_fn, SECOND)
    assert isinstance(caught.value.__context__, ValueError)


def test_outside_the_main_thread_nothing_is_installed() -> None:
    seen: list[Any] = []
    _, optimizer, loss_fn = training(lambda: seen.append(signal.getsignal(signal.SIGINT)))
    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=lambda: optimizer.step(loss_fn, SECOND))
    thread.start()
    thread.join()
    assert seen == [before, before]


def test_a_step_inside_a_step_passes_the_signal_on() -> None:
    _, inner, inner_loss = training(Pressed(signal.SIGINT))
    model, optimizer, loss_fn = training(lambda: inner.step(inner_loss, SECOND))
    with pytest.raises(KeyboardInterrupt):
        optimizer.step(loss_fn, SECOND)
    assert torch.equal(flat(model), undisturbed())


def test_handlers_come_back_though_one_that_is_back_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the instant in which its handler is back, and another is not."""
    set_handler = signal.signal
    pressed = Pressed(signal.SIGINT)

    def set_and_press(number: int, handler: Any) -> Any:
        before = set_handler(number, handler)
        if number == signal.SIGINT and handler is signal.default_int_handler:
            pressed()
        return before

    def own(*_: Any) -> None: ...

    others = {number: set_handler(number, own) for number in HELD[1:]}
    _, optimizer, loss_fn = training()
    monkeypatch.setattr(signal, "signal", set_and_press)
    with pytest.raises(KeyboardInterrupt):
        optimizer.step(loss_fn, SECOND)
    monkeypatch.undo()
    assert [signal.getsignal(number) for number in HELD[1:]] == [own] * len(others)
    for number, before in others.items():
        signal.signal(number, before)


def test_handlers_come_back_though_a_second_ctrl_c_breaks_that_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pressed, release = Pressed(signal.SIGINT, times=2), HeldSignals.release

    def press_and_release(self: HeldSignals) -> None:
        pressed()
        pressed()
        release(self)

    _, optimizer, loss_fn = training()
    monkeypatch.setattr(HeldSignals, "release", press_and_release)
    with pytest.raises(KeyboardInterrupt):
        optimizer.step(loss_fn, SECOND)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_waits_for_the_end_of_an_evaluation_elsewhere() -> None:
    """A landscape takes the weights away too: each point of it is evaluated as a whole."""
    model = tiny_mlp()
    loss_of, pressed, calls = cross_entropy_of(model), Pressed(signal.SIGINT), [0]

    def loss_fn(batch: Batch) -> torch.Tensor:
        calls[0] += 1
        pressed()
        return loss_of(batch)

    def away(weights: Sequence[torch.Tensor]) -> None:
        for p in weights:
            p.add_(1.0)

    surface, start = Surface(model, loss_fn, [FIRST, SECOND]), flat(model)
    for ask in (surface.loss, surface.gradient):
        calls[0], pressed.left = 0, 1
        with pytest.raises(KeyboardInterrupt):
            ask(away)
        assert calls == [2]
        assert torch.equal(flat(model), start)
