"""Models whose gradients something else shares between devices, which executors do not take."""

from __future__ import annotations

from torch import nn

# By the names of classes: torch's sharded ones are imported by those who use them, and wrappers
# of other libraries have the same names.
AVERAGING = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "BranchModel")
SHARDING = ("FSDPModule",)


def require_bare(caller: str, model: nn.Module) -> None:
    """Refuse a model that is, or contains, a wrapper which shares gradients by itself.

    On several branches it would average probes that must stay apart. In `Serial` it would share
    gradients between processes that agree on nothing else: neither on the seed of random directions
    nor on `sync_perturbation`, and dropout would draw the same masks on all of them.

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
        if not classes.isdisjoint(SHARDING):
            raise ValueError(
                f"{caller} takes the bare module, got one sharded by fully_shard {place}; sharded "
                "models are not taken yet: leave out fully_shard and use sampa.distribute, which "
                "keeps a whole copy of the model on each rank"
            )
