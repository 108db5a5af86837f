"""The executor's interface, and what its implementations share."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sized
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.utils.data import Dataset, DistributedSampler

from sampa.execution.evaluate import Answer, Evaluator
from sampa.method import Round
from sampa.vectors.vector import Weights


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something wrong that only the device knows of so far.

    Attributes:
        flag: On the device: not zero where it is wrong.
        refuse: Raises the error that says so.
        is_certain: Whether the flag alone tells, so that a step must change nothing where it is
            set; otherwise `refuse` finds out, and may return.
    """

    flag: Tensor
    refuse: Callable[[], None]
    is_certain: bool = True


class Executor(Protocol):
    """Answers rounds of probes, in one process or on several ranks at once.

    Attributes:
        model: What `loss_fn` calls. None if the optimizer was built without an executor.
        mesh: The ranks as a mesh with dimensions ("branch", "data"), or None in one process.
        branch: The branch of this rank: it answers this probe of a round.
        data_rank: The place of this rank among those that share a branch.
        is_sharded: Whether each data rank holds a part of the weights.
    """

    @property
    def model(self) -> Any: ...

    @property
    def mesh(self) -> DeviceMesh | None: ...

    @property
    def branch(self) -> int: ...

    @property
    def data_rank(self) -> int: ...

    @property
    def is_sharded(self) -> bool: ...

    @property
    def module(self) -> nn.Module | None:
        """The user's model, without any wrapper."""
        ...

    def adopt(self, weights: Weights, settings: dict[str, Any]) -> None:
        """Check that these parameters can be trained here, and that all ranks agree on it."""
        ...

    def answer(self, probes: Round, first: int, evaluator: Evaluator) -> list[Answer]:
        """One answer per probe, the same on every rank. `first` numbers the probes in the step."""
        ...

    def at_hand(self) -> AbstractContextManager[None]:
        """Entered where vectors are computed with: knows whose shards make up a whole one."""
        ...

    def forget_copies(self) -> None:
        """Drop what was made of the weights: they were changed in place, or will be."""
        ...

    def doubts(self) -> list[Doubt]:
        """What the step's numbers have yet to tell about the answers since the last call."""
        ...

    def agree_on(self, value: int) -> int:
        """The first rank's value."""
        ...

    def gather(self, value: Any) -> list[Any]:
        """What every data rank has, such as `optimizer.last.outputs`, on all ranks: a collective.

        Of several branches, the value of the first that has one: None is none.
        """
        ...

    def warn_if_idle(self, widest_round: int) -> None:
        """Warn if some branch never has a probe of its own."""
        ...

    def sync_buffers(self) -> None:
        """Give every rank the same BatchNorm statistics; call it on all ranks."""
        ...

    def sampler(
        self, dataset: Dataset[Any], shuffle: bool = True, seed: int = 0
    ) -> DistributedSampler[Any]:
        """A sampler that shows every branch the same batches and data ranks disjoint shards."""
        ...


def shard_sampler(
    dataset: Dataset[Any], shuffle: bool, seed: int, *, shards: int, shard: int
) -> DistributedSampler[Any]:
    """The sampler of one shard; call its `set_epoch` to reshuffle.

    Raises:
        TypeError: If the data set has no length.
    """
    if not isinstance(dataset, Sized):
        raise TypeError(
            f"executor.sampler needs a data set with a length, got {type(dataset).__name__}; let "
            "an iterable data set yield the samples of its data rank (executor.data_rank), the "
            "same on every branch"
        )
    return DistributedSampler(
        dataset, num_replicas=shards, rank=shard, shuffle=shuffle, seed=seed, drop_last=False
    )


def warn_if_narrow(probes: int, branches: int) -> None:
    """Warn of branches that compute the same thing."""
    if probes < branches:
        warnings.warn(
            f"this method has at most {probes} probe(s) a round, so {branches} "
            f"branches compute the same thing; use sampa.distribute(model, branches={probes}), or "
            f"sampa.mesh(branches={probes}), for data parallel training",
            stacklevel=stacklevel_of_caller(),
        )


def launched_world_size() -> int:
    """How many processes torchrun started, 1 in plain python."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def stacklevel_of_caller() -> int:
    """How far above the frame that warns the first one is that is not sampa's or torch's."""
    libraries = (str(Path(__file__).parents[1]), str(Path(torch.__file__).parent))
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(libraries):
        frame, level = frame.f_back, level + 1
    return level
