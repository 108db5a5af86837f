"""A round in one process: the same code path with nothing to communicate."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn
from torch.utils.data import Dataset, DistributedSampler

from sampa.execution.evaluate import Answer, Evaluator
from sampa.execution.executor import Doubt, Executor, launched_world_size, shard_sampler
from sampa.execution.wrapped import require_bare, require_whole
from sampa.method import PERTURBED, Round
from sampa.vectors.vector import Weights


class Serial:
    """Answers a round one probe after the other."""

    mesh = None
    branch = 0
    data_rank = 0
    is_sharded = False

    def __init__(self, model: nn.Module | None = None) -> None:
        if model is not None:
            require_bare("sampa.Serial", model)
        self.model = model

    @property
    def module(self) -> nn.Module | None:
        return self.model

    def adopt(self, weights: Weights, settings: dict[str, Any]) -> None:
        require_whole("sampa.Serial", weights)

    def answer(self, probes: Round, first: int, evaluator: Evaluator) -> list[Answer]:
        answers: dict[int, Answer] = {}
        with (
            evaluator.layers.one_round(len(probes)),
            evaluator.excursions.from_one_copy(),
        ):
            # Perturbed points last: a lookahead needs a copy of the base optimizer's state on top
            # of what is alive, and less is alive in the beginning.
            for i in sorted(range(len(probes)), key=lambda i: probes[i].role is PERTURBED):
                loss = evaluator.backward(probes[i], first + i)
                answers[i] = evaluator.answer(probes[i], evaluator.taken(), loss)
        return [answers[i] for i in range(len(probes))]

    def at_hand(self) -> AbstractContextManager[None]:
        return nullcontext()

    def forget_copies(self) -> None:
        pass

    def doubts(self) -> list[Doubt]:
        return []

    def agree_on(self, value: int) -> int:
        return value

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def warn_if_idle(self, widest_round: int) -> None:
        pass

    def sync_buffers(self) -> None:
        pass

    def sampler(
        self, dataset: Dataset[Any], shuffle: bool = True, seed: int = 0
    ) -> DistributedSampler[Any]:
        return shard_sampler(dataset, shuffle, seed, shards=1, shard=0)


def default_executor() -> Executor:
    """What an optimizer uses that was given none."""
    world = launched_world_size()
    if world > 1:
        raise RuntimeError(
            f"{world} processes were started but the optimizer has no executor, so that the "
            "replicas would drift apart; write executor = sampa.distribute(model) and pass "
            "executor=executor (or executor=sampa.Serial(model) if each process is to train alone)"
        )
    return Serial()
