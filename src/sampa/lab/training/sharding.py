"""The executor of a run: replicas of the model, or FSDP2 over the data ranks of a branch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

import sampa
from sampa.execution.executor import Executor
from sampa.lab.devices import move_model
from sampa.lab.training.run import Run
from sampa.lab.training.session import SavedLoop, Settings
from sampa.messages import WrongUsage
from sampa.method import Method


def executor_of(
    run: Run, model: nn.Module, branches: int, settings: Settings, device: torch.device
) -> Executor:
    """What answers the probes of a run, with the model on its device, or a part of it."""
    timeout = settings.timeout
    if settings.shard:
        mesh = sampa.mesh(branches=branches, device=device, timeout=timeout)
        shard_model(model, mesh)
        return sampa.distribute(model, mesh=mesh)
    move_model(model, device)
    network: nn.Module = torch.compile(model) if run.compile else model  # pyright: ignore[reportAssignmentType]
    return sampa.distribute(network, branches=branches, timeout=timeout)


def require_run_shards(run: Run, method: Method, settings: Settings) -> None:
    """Refuse --shard together with what needs the whole model.

    Raises:
        WrongUsage: Saying what to leave out.
    """
    if not settings.shard:
        return
    faults = {
        "--compile is not tried with it": run.compile,
        "--flatness-every needs all weights in one process": settings.flatness_every is not None,
        f"{run.method} needs all weights in one process": getattr(
            method, "needs_whole_vectors", False
        ),
        f"{run.method} keeps records that cannot be sharded": getattr(
            method, "writes_records", False
        ),
    }
    for fault, applies in faults.items():
        if applies:
            raise WrongUsage(f"--shard cannot be used here: {fault}; leave out one of them")


def shard_model(model: nn.Module, mesh: DeviceMesh) -> None:
    """Cut a model over the data ranks: layer by layer, then what is left.

    A layer is whole on its device while it is cut and while it computes; no more than that.
    """
    from torch.distributed.fsdp import fully_shard  # takes seconds

    for layer in list(layers_of(model)):
        fully_shard(layer, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])


def layers_of(model: nn.Module) -> Iterator[nn.Module]:
    """What is gathered at once: the outermost elements of lists and sequences of layers.

    Vectors such as those of BatchNorm, and weights that several layers share, stay with the rest.
    """
    named = model.named_parameters(remove_duplicate=False)
    uses = Counter(parameter for _, parameter in named)

    def found(module: nn.Module) -> Iterator[nn.Module]:
        for child in module.children():
            is_element = isinstance(module, nn.Sequential | nn.ModuleList)
            is_list = isinstance(child, nn.Sequential | nn.ModuleList)
            if is_element and not is_list and _is_layer(child, uses):
                yield child
            else:
                yield from found(child)

    return found(model)


def _is_layer(module: nn.Module, uses: Counter[nn.Parameter]) -> bool:
    own = list(module.parameters())
    return any(p.ndim > 1 for p in own) and all(uses[p] == 1 for p in own)


def changed_cut(saved: SavedLoop, data_ranks: int, executor: Executor) -> list[str]:
    """What a resumed run cuts otherwise than the saved one.

    Raises:
        RuntimeError: If the weights are sharded in one of them alone.
    """
    if saved.sharded != executor.is_sharded:
        how = "without" if executor.is_sharded else "with"
        raise RuntimeError(f"it was saved {how} --shard")
    if saved.data_ranks == data_ranks:
        return []
    return [
        f"each batch is now cut into {data_ranks} part(s), before it was {saved.data_ranks}: "
        "the result will differ in the last bits, and more with BatchNorm, from that of an "
        "uninterrupted run"
    ]
