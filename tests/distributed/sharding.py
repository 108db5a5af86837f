"""A small run on sharded weights, and the same in one process on the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

import sampa
from tests.problems import BASES

Sample = tuple[Tensor, ...]  # inputs, classes, the samples' numbers


class Block(nn.Module):
    """Attention and a feed-forward part, with layer norms."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        # Without a bias: that of the keys has no gradient but rounding, which AdamW would blow up.
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Predicts the class of a sequence by the embedding of its tokens: tied weights, odd sizes."""

    def __init__(self, vocabulary: int = 11, width: int = 6, blocks: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.place = nn.Parameter(torch.randn(5, width) / 3)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)
        self.head.weight = self.tokens.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.tokens(x) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))


class Convolutions(nn.Module):
    """Filters for ASAM's norms, of which ranks have different numbers; batch norm if asked."""

    def __init__(self, batch_norm: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 5, 3)
        self.bn = nn.BatchNorm2d(5) if batch_norm else nn.Identity()
        self.head = nn.Linear(5, 11)

    def forward(self, x: Tensor) -> Tensor:
        images = F.one_hot(x, 11).to(self.conv.weight.dtype)[:, None]
        return self.head(self.bn(self.conv(images)).tanh().mean(dim=(2, 3)))


class Optional(Transformer):
    """A layer takes part in every other batch alone."""

    def __init__(self) -> None:
        super().__init__()
        self.extra = nn.Linear(11, 11)

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        return self.extra(logits) if x[0, 0] % 2 else logits


def transformer() -> nn.Module:
    return Transformer()


def shard(model: nn.Module, mesh: DeviceMesh, **options: Any) -> None:
    """As users do: layer by layer, then what is left."""
    for block in getattr(model, "blocks", []):
        fully_shard(block, mesh=mesh["data"], **options)
    fully_shard(model, mesh=mesh["data"], **options)


@dataclass(frozen=True)
class Case:
    """A run to compare; the functions are called on every rank."""

    name: str
    make: Callable[..., sampa.SharpnessAware] = sampa.SAMPa
    options: dict[str, Any] = field(default_factory=dict)
    branches: int = 2
    base: str = "sgd-momentum"
    net: Callable[[], nn.Module] = transformer
    groups: Callable[[nn.Module], Any] = nn.Module.parameters
    sharding: dict[str, Any] = field(default_factory=dict)  # keywords of fully_shard
    distribute: dict[str, Any] = field(default_factory=dict)
    between: Callable[[nn.Module, Sample], None] | None = None  # after each step
    prepare: Callable[[nn.Module], None] | None = None  # before sharding
    steps: int = 4
    epochs: bool = False
    dtype: torch.dtype = torch.float64


class Session:
    """A case in progress: sharded over a mesh, or with all of the model and the batch."""

    def __init__(self, case: Case, mesh: DeviceMesh | None = None, *, sharded: bool = True) -> None:
        torch.manual_seed(5)
        self.case = case
        self.model = case.net().to(case.dtype)
        if case.prepare is not None:
            case.prepare(self.model)
        if mesh is None:
            self.executor: Any = sampa.Serial(self.model)
        else:
            if sharded:
                shard(self.model, mesh, **case.sharding)
            self.executor = sampa.distribute(self.model, mesh=mesh, **case.distribute)
        self.data_ranks = 1 if mesh is None else mesh.size(1)
        base = BASES[case.base](case.groups(self.model))
        options = {"seed": 7, **case.options}
        self.optimizer = case.make(base, executor=self.executor, **options)
        self.numbers: list[tuple[float, ...]] = []

    def advance(self, batches: Sequence[Sample]) -> None:
        for i, batch in enumerate(batches):
            if self.case.epochs:
                self.optimizer.set_epoch(i)
            own = self.own(batch)
            loss = self.optimizer.step(self.loss_fn, own)
            last = self.optimizer.last
            assert last is not None
            self.numbers.append((float(loss), *last.losses, *last.norms, last.cosine or 0.0))
            if self.case.between is not None:
                self.case.between(self.executor.model, own)

    def own(self, batch: Sample) -> Sample:
        """The part of this data rank."""
        return tuple(t[self.executor.data_rank :: self.data_ranks] for t in batch)

    def loss_fn(self, batch: Sample) -> sampa.Loss:
        x, y, index = batch
        logits = self.executor.model(x)
        per_sample = F.cross_entropy(logits, y, reduction="none")
        return sampa.Loss(per_sample.mean(), per_sample, logits, y, index)

    def weights(self) -> dict[str, Tensor]:
        self.executor.forget_copies()
        return {name: whole(p) for name, p in self.model.named_parameters()}


def whole(t: Any) -> Tensor:
    return (t.full_tensor() if hasattr(t, "full_tensor") else t).detach().clone()


def token_batches(count: int, size: int = 8, seed: int = 0) -> list[Sample]:
    generator = torch.Generator().manual_seed(seed)
    return list(_batches(count, size, generator))


def _batches(count: int, size: int, generator: torch.Generator) -> Iterator[Sample]:
    for i in range(count):
        x = torch.randint(11, (size, 5), generator=generator)
        x[:, 0] = i  # the same on all data ranks
        y = torch.randint(11, (size,), generator=generator)
        yield x, y, torch.arange(size) + i * size


def difference(a: Session, b: Session) -> float:
    """The largest difference of weights and of what the steps told."""
    ours, theirs = a.weights(), b.weights()
    assert ours.keys() == theirs.keys()
    far = [(ours[k] - theirs[k]).abs().max().item() for k in ours]
    pairs = [
        (s, t) for m, n in zip(a.numbers, b.numbers, strict=True) for s, t in zip(m, n, strict=True)
    ]
    far += [abs(s - t) for s, t in pairs]
    assert all(f == f for f in far)
    return max(far)
