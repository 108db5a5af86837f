"""Models whose gradients something else shares are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

import sampa
from tests.ranks import run_ranks

pytestmark = pytest.mark.dist


def in_a_wrapper() -> nn.Module:
    return DistributedDataParallel(nn.Linear(4, 4))


def nested() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), in_a_wrapper())


def in_threads() -> nn.Module:
    return nn.DataParallel(nn.Linear(4, 4))


def sharded_in_a_wrapper() -> nn.Module:
    return FullyShardedDataParallel(nn.Linear(4, 4), device_id=torch.device("cpu"))


def sharded_in_place() -> nn.Module:
    layer = nn.Linear(4, 4)
    fully_shard(layer)
    return layer


WRAPPED = {
    in_a_wrapper: "got DistributedDataParallel as the model, which shares gradients by itself",
    nested: "got DistributedDataParallel in '1'",
    in_threads: "got DataParallel as the model",
    sharded_in_a_wrapper: "got FullyShardedDataParallel as the model",
    sharded_in_place: "got one sharded by fully_shard as the model; make the mesh first",
}


def refuse_the_wrapped() -> None:
    dist.init_process_group("gloo")
    for net, reason in WRAPPED.items():
        model = net()
        for take, name in ((sampa.distribute, "sampa.distribute"), (sampa.Serial, "sampa.Serial")):
            with pytest.raises(ValueError, match=f"{name} takes the bare module, {reason}"):
                take(model)


def test_wrappers_that_share_gradients_are_refused_by_name() -> None:
    run_ranks(2, refuse_the_wrapped)


@pytest.mark.parametrize("take", [sampa.distribute, sampa.Serial])
def test_wrappers_are_refused_in_one_process_too(take: Any) -> None:
    with pytest.raises(ValueError, match="takes the bare module, got DataParallel as the model"):
        take(in_threads())


def distribute_twice(shared_memory: bool) -> None:
    model = sampa.distribute(nn.Linear(4, 4), shared_memory=shared_memory).model
    with pytest.raises(ValueError, match="takes the bare module, got"):
        sampa.distribute(model)


@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_model_is_distributed_once(shared_memory: bool) -> None:
    run_ranks(2, distribute_twice, shared_memory)
