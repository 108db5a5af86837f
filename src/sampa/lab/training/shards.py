"""Checkpoints that several processes write and read, each its own rows of every sharded tensor.

The rows are cut anew when they are read, for any number of processes; one alone gets all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from sampa.execution.executor import Executor
from sampa.execution.parallel.groups import everyone
from sampa.lab.training.trees import Json, Shard, shards_in

T = TypeVar("T")


@dataclass(frozen=True)
class Shards:
    """Which part of a checkpoint is this process's.

    Attributes:
        mesh: Branch × data: the data ranks of a branch have a part each, and branches the same.
            None if this process has all, and is the only one that saves.
    """

    mesh: DeviceMesh | None = None

    @property
    def number(self) -> int:
        """Of this process's part, from 0."""
        return 0 if self.mesh is None else self.mesh.get_local_rank(1)

    @property
    def count(self) -> int:
        return 1 if self.mesh is None else self.mesh.size(1)

    @property
    def writes(self) -> bool:
        """Whether this process writes its part: one of those that have the same does."""
        return self.mesh is None or self.mesh.get_local_rank(0) == 0

    @property
    def is_first(self) -> bool:
        """Whether this process does what is done once for all."""
        return self.writes and self.number == 0

    def file_name(self, part: str) -> str:
        """The name of this process's files of a part, without their endings."""
        return part if self.mesh is None else f"{part}-{self.number + 1}-of-{self.count}"

    def together(self, action: Callable[[], T]) -> list[T]:
        """What every process got from an action.

        Raises:
            OSError: On all of them, if it failed with one on some.
        """
        if self.mesh is None:
            return [action()]
        found, reason = None, None
        try:
            found = action()
        except (OSError, SafetensorError) as error:
            reason = str(error)
        outcomes = everyone((found, reason))
        for rank, (_, reason) in enumerate(outcomes):
            if reason is not None:
                raise OSError(f"on rank {rank}: {reason}")
        return [found for found, _ in outcomes]

    def once(self, action: Callable[[], Any]) -> None:
        """Have the first process do something; all of them fail if it does."""
        self.together(lambda: action() if self.is_first else None)

    def rows(self, shape: Sequence[int]) -> tuple[int, int]:
        """The first row of this process's part of a tensor, and the one after its last."""
        most = -(-shape[0] // self.count)
        return min(self.number * most, shape[0]), min((self.number + 1) * most, shape[0])

    def placed(self, part: Tensor, shape: Sequence[int]) -> Tensor:
        """A part as the parameters are: a DTensor if this process has not all."""
        if self.mesh is None:
            return part
        from torch.distributed import tensor  # imported only where something is sharded

        strides = torch.empty(shape, device="meta").stride()
        own = part.to(self.mesh.device_type)
        return tensor.DTensor.from_local(
            *(own, self.mesh["data"], [tensor.Shard(0)]),
            run_check=False,
            shape=torch.Size(shape),
            stride=strides,
        )


UNSHARDED = Shards()


def shards_of(executor: Executor) -> Shards:
    """The part of a run's state that this process has."""
    return Shards(executor.mesh if executor.is_sharded else None)


class Assembly:
    """Puts this process's rows together, from the parts that others have written in their order."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._seen: dict[str, int] = {}  # rows that the parts so far have
        self._pieces: dict[str, list[Tensor]] = {}

    def add(self, skeleton: Json, tensors: dict[str, Tensor]) -> None:
        """Take what is needed of a part, the next in their order.

        Raises:
            ValueError: If it does not follow on the one before.
        """
        for shard in shards_in(skeleton):
            self._add(shard, tensors[shard.name])

    def _add(self, shard: Shard, rows: Tensor) -> None:
        name, shape, first = shard.name, shard.shape, shard.offsets[0]
        last = first + len(rows)
        fits = rows.shape[1:] == shape[1:] and first == self._seen.get(name, 0)
        if not fits or self._shapes.setdefault(name, shape) != shape or last > shape[0]:
            raise ValueError(f"{name} of shape {shape} has rows {tuple(rows.shape)} at {first}")
        self._seen[name] = last
        start, stop = self._shards.rows(shape)
        piece = rows[max(start - first, 0) : max(stop - first, 0)]
        kept = self._pieces.setdefault(name, [])
        if len(piece) or not kept:
            kept.append(piece.clone())  # the file is not kept in memory

    def tensors(self) -> dict[str, Tensor]:
        """All sharded tensors.

        Raises:
            ValueError: If rows are missing.
        """
        for name, shape in self._shapes.items():
            if self._seen[name] != shape[0]:
                raise ValueError(f"{name} has {self._seen[name]} rows of {shape[0]}")
        return {
            n: self._shards.placed(torch.cat(p), self._shapes[n]) for n, p in self._pieces.items()
        }
