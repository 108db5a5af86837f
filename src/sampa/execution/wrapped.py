"""Models whose gradients something else shares between devices, which executors do not take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from torch import Tensor, nn

from sampa.vectors.vector import is_sharded

# By the names of classes: torch's sharded ones are imported by those who use them, and wrappers
# of other libraries have the same names.
AVERAGING = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "BranchModel")
SHARDING = "FSDPModule"


def sharded_modules(model: nn.Module) -> Iterator[Any]:
    """The modules inside a model, itself included, that `fully_shard` was called with."""
    for module in model.modules():
        if any(c.__name__ == SHARDING for c in type(module).__mro__):
            yield module


def require_bare(caller: str, model: nn.Module, *, sharded: bool = False) -> None:
    """Refuse a model that is, or contains, a wrapper which shares gradients by itself.

    On several branches it would average probes that must stay apart. In `Serial` it would share
    gradients between processes that agree on nothing else: neither on the seed of random directions
    nor on `sync_perturbation`, and dropout would draw the same masks on all of them.

    Args:
        caller: Who refuses.
        model: What it was given.
        sharded: Whether modules sharded by `fully_shard` are taken.

    Raises:
        ValueError: Naming the wrapper, its place, and what to pass instead.
    """
    for path, module in model.named_modules():
        classes = {c.__name__ for c in type(module).__mro__}
        place = f"in {path!r}" if path else "as the model"
        averaging = [name for name in AVERAGING if name in classes]
        if averaging:
            raise ValueError(
                f"{caller} takes the bare module, got {averaging[0]} {place}, which shares "
                "gradients by itself; pass the module inside of it (its attribute .module) to "
                "sampa.distribute, which averages over data ranks and keeps probes apart "
                "(branches=1 is plain data parallel)"
            )
        if SHARDING in classes and not sharded:
            _refuse_sharded(caller, f"one sharded by fully_shard {place}")
    if not sharded:
        require_whole(caller, model.parameters())


def require_whole(caller: str, parameters: Iterable[Tensor]) -> None:
    """Refuse parameters of which this process has a part: a norm of that is not the norm.

    Raises:
        ValueError: With what to pass instead.
    """
    if any(map(is_sharded, parameters)):
        _refuse_sharded(caller, "parameters that are sharded (DTensor)")


def require_unsharded(caller: str, model: nn.Module) -> None:
    """Refuse a sharded model, also if its weights are gathered now and look whole.

    Raises:
        ValueError: With what to do.
    """
    if any(map(is_sharded, model.parameters())) or any(True for _ in sharded_modules(model)):
        raise ValueError(
            f"{caller} takes a whole model, got a sharded one; load its weights "
            "(get_model_state_dict with full_state_dict=True) into one without fully_shard"
        )


def _refuse_sharded(caller: str, what: str) -> NoReturn:
    raise ValueError(
        f"{caller} takes the bare module, got {what}; make the mesh first "
        "(mesh = sampa.mesh(branches=2)), shard over its data ranks "
        "(fully_shard(model, mesh=mesh['data'])), and pass both on: "
        "sampa.distribute(model, mesh=mesh)"
    )
