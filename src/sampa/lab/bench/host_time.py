"""The host's own time in a step of SAMPa, beside a loop that was written by hand for SGD alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import sampa
from sampa.lab.bench.contenders import MethodStep, Step, bare_step
from sampa.lab.bench.meters import meter_of
from sampa.lab.bench.own_cost import CPU, FreeBench
from sampa.lab.bench.workloads import Workload
from sampa.lab.pool import started
from sampa.lab.progress import Bar

# ResNet-56's number of tensors; so small that only the time of calls counts.
TENSORS, NUMBERS_A_TENSOR = 167, 16
STEPS_A_TURN = 5


class SAMPaByHand:
    """SAMPa for SGD with momentum in one process: no groups, no record, one check."""

    def __init__(self, base: torch.optim.SGD, rho: float = 0.1, lam: float = 0.2) -> None:
        self.base, self.rho, self.lam = base, rho, lam
        self.x: list[Tensor] = base.param_groups[0]["params"]
        self.g: list[Tensor] | None = None
        self.held: Any = None

    @torch.no_grad()
    def step(self, loss_fn: Callable[[Any], Tensor], batch: Any) -> None:
        g, held, self.held = self.g, self.held, batch
        if g is None:
            self.g = self._gradient(loss_fn, batch)
            return
        x_t = [p.clone() for p in self.x]
        # y_{t+1} = ModelUpdate_{m_t}(x_t, g_t)
        states = [self.base.state[p] for p in self.x]
        m_t = [None if not s else s["momentum_buffer"].clone() for s in states]
        self._update(g)
        self.g = self._gradient(loss_fn, batch)
        torch._foreach_copy_(self.x, x_t)
        for state, m in zip(states, m_t, strict=True):
            state["momentum_buffer"] = m
        # x̃_t = x_t + ρ g_t / ‖g_t‖
        torch._foreach_add_(self.x, torch._foreach_mul(g, self.rho / (_norm(g) + 1e-12)))
        g_tilde = self._gradient(loss_fn, held)
        torch._foreach_copy_(self.x, x_t)
        # G_t = (1−λ) ∇f(x̃_t; B_t) + λ ∇f(y_{t+1}; B_{t+1})
        if not (_norm(g_tilde) + _norm(self.g)).isfinite():
            raise RuntimeError("a gradient is not finite")
        torch._foreach_mul_(g_tilde, 1 - self.lam)
        torch._foreach_add_(g_tilde, self.g, alpha=self.lam)
        self._update(g_tilde)

    def _gradient(self, loss_fn: Callable[[Any], Tensor], batch: Any) -> list[Tensor]:
        self.base.zero_grad()
        with torch.enable_grad():
            loss_fn(batch).backward()
        return [p.grad for p in self.x if p.grad is not None]

    def _update(self, gradient: list[Tensor]) -> None:
        for p, g in zip(self.x, gradient, strict=True):
            p.grad = g
        self.base.step()


def _norm(tensors: list[Tensor]) -> Tensor:
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))


@dataclass(frozen=True)
class HostTime:
    """Milliseconds of a step less those of its two gradients, which are handed out."""

    tensors: int
    sampa: float
    by_hand: float

    @property
    def ratio(self) -> float:
        return self.sampa / self.by_hand


def host_time_of_starts(starts: int) -> HostTime:
    """That of the process with the median ratio, of several that are started one after the other.

    Where the system puts a process's memory makes the ratio larger or smaller by a tenth, for as
    long as it lives.
    """
    found: list[HostTime] = []
    with Bar("own host time", starts) as bar:
        for _ in range(starts):
            with started(_with_one_thread, [()], workers=1) as (running,):
                found.append(running.result())
            bar.advance()
    return sorted(found, key=lambda one: one.ratio)[starts // 2]


def _with_one_thread() -> HostTime:
    torch.set_num_threads(1)
    return host_time()


def host_time(turns: int = 20) -> HostTime:
    """Medians of steps in turns (A, B, C, A, B, C, ...)."""
    gradient = bare_step(free_bench(), update=False)
    steps: tuple[Step, ...] = (step_of_sampa(), step_by_hand(), gradient)
    meter, found = meter_of(CPU), []
    for step in steps:
        repeated(step)  # the first ones make state
    for _ in range(turns):
        found.append([meter.seconds(lambda s=s: repeated(s)) / STEPS_A_TURN for s in steps])
    ours, theirs, free = (1e3 * statistics.median(times) for times in zip(*found, strict=True))
    return HostTime(TENSORS, ours - 2 * free, theirs - 2 * free)


def repeated(step: Step) -> None:
    for _ in range(STEPS_A_TURN):
        step()


def free_bench() -> FreeBench:
    network = nn.ParameterList([torch.randn(NUMBERS_A_TENSOR) for _ in range(TENSORS)])
    gradients = [torch.randn_like(p) for p in network]
    return FreeBench(Workload("mlp", 2), CPU, 0, 1, network, gradients)


def foreach_sgd(network: nn.Module) -> torch.optim.SGD:
    """As on a GPU, where one call works on all tensors."""
    return torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, foreach=True)


def step_of_sampa() -> Step:
    bench = free_bench()
    optimizer = sampa.SAMPa(foreach_sgd(bench.network), executor=sampa.Serial(bench.network))
    return MethodStep(optimizer, lambda b: bench.loss(bench.network, b), bench.batches())


def step_by_hand() -> Step:
    bench = free_bench()
    loop, batch = SAMPaByHand(foreach_sgd(bench.network)), next(bench.batches())
    return lambda: loop.step(lambda b: bench.loss(bench.network, b), batch)
