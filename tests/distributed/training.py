"""One small training run that behaves alike in one process and on several ranks.

`serial(run)` and `parallel(run, ranks)` do the same thing and bring back everything that a run
leaves behind, so that a test can compare the two at zero tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sampa
from sampa.lab.devices import find_device
from sampa.samples import map_tensors
from tests.problems import BASES, Batch, SmallNet, image_batches, small_net
from tests.ranks import run_ranks

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def cross_entropy(model: nn.Module, batch: Batch) -> Tensor:
    x, y = batch
    return F.cross_entropy(model(x), y)


def net_without_noise() -> SmallNet:
    return small_net(batch_norm=False, dropout=0.0)


@dataclass(frozen=True)
class Run:
    """A training run. Functions must be importable, so that ranks find them.

    Attributes:
        steps: Calls of `step`; SAMPa's first makes no update.
        make: From the base optimizer and options to the method.
        options: The method's hyper-parameters and `sampa.Options`.
        distribute: Keywords of `sampa.distribute`.
        net: The model, the same on every rank.
        groups: From the model to the base optimizer's parameters or groups.
        loss: From the model and a batch to what `loss_fn` returns.
        batch_size: Of the whole batch; a data rank takes its part.
        dtype: Of the model and the batches; None leaves them.
        device: Of the model and the batches: cpu, or cuda, of which each rank takes its own.
    """

    steps: int = 21
    make: Callable[..., sampa.SharpnessAware] = sampa.SAMPa
    options: dict[str, Any] = field(default_factory=dict)
    distribute: dict[str, Any] = field(default_factory=dict)
    base: str = "sgd-momentum"
    net: Callable[[], nn.Module] = small_net
    groups: Callable[[nn.Module], Any] = nn.Module.parameters
    loss: Callable[[nn.Module, Batch], Any] = cross_entropy
    batch_size: int = 16
    dtype: torch.dtype | None = None
    device: str = "cpu"


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind on one rank."""

    model: dict[str, Tensor]  # weights and buffers
    optimizer: dict[str, Any]  # the base's state, held gradient and batch, counters
    losses: list[Tensor]
    records: list[sampa.StepRecord | None]


class Session:
    """A run in progress, in this process, which may be a rank."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.device = find_device(run.device)
        self.model = run.net().to(self.device, run.dtype)
        self.executor = sampa.distribute(self.model, **run.distribute)
        base = BASES[run.base](run.groups(self.model))
        self.optimizer = run.make(base, executor=self.executor, **{"seed": 7, **run.options})
        self.losses: list[Tensor] = []
        self.records: list[sampa.StepRecord | None] = []
        self._batches = self._own_batches()

    def advance(self, steps: int) -> None:
        for _ in range(steps):
            self.losses.append(self.optimizer.step(self.loss_fn, next(self._batches)))
            self.records.append(self.optimizer.last)

    def skip(self, batches: int) -> Batch | None:
        """Pass over batches, as a loader does when a run is resumed; gives the last of them."""
        passed = [next(self._batches) for _ in range(batches)]
        return passed[-1] if passed else None

    def loss_fn(self, batch: Batch) -> Any:
        return self.run.loss(self.executor.model, batch)

    def outcome(self) -> Outcome:
        self.executor.model.eval()
        self.executor.model.train()
        found = self.model.state_dict(), self.optimizer.state_dict(), self.losses
        model, optimizer, losses = map_tensors(lambda t: t.cpu(), found)
        return Outcome(model, optimizer, losses, self.records)

    def _own_batches(self) -> Iterator[Batch]:
        """This rank's part of every batch."""
        shards = 1 if self.executor.mesh is None else self.executor.mesh.size(1)
        for x, y in image_batches(10**6, self.run.batch_size):
            own = slice(self.executor.data_rank, None, shards)
            x, y = x.to(self.device, self.run.dtype)[own], y.to(self.device)[own]
            yield x, y


def train(run: Run) -> Outcome:
    session = Session(run)
    session.advance(run.steps)
    return session.outcome()


def serial(run: Run) -> Outcome:
    """The run in one process of its own, with the environment that ranks have."""
    return run_ranks(1, train, run)[0]


def parallel(run: Run, ranks: int = 2) -> list[Outcome]:
    return run_ranks(ranks, train, run)


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Where two nests differ, compared bit for bit: the sign of zero counts."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return [] if _same_tensor(a, b) else [path]
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return [d for k in a for d in differences(a[k], b[k], f"{path}.{k}")]
    if isinstance(a, Outcome | sampa.StepRecord) and type(a) is type(b):
        values = [(f.name, getattr(a, f.name), getattr(b, f.name)) for f in fields(a)]
        return [d for name, v, w in values for d in differences(v, w, f"{path}.{name}")]
    if isinstance(a, list | tuple) and type(a) is type(b) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return [d for i, (v, w) in pairs for d in differences(v, w, f"{path}[{i}]")]
    same = type(a) is type(b) and (a == b or (a != a and b != b))
    return [] if same else [path]


def _same_tensor(a: Tensor, b: Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    integers = _INTEGERS[a.element_size()]
    return torch.equal(a.view(integers), b.view(integers))
