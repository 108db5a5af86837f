"""What a framework has to know about ranks: who shares a batch, and whose state is saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sampa.execution.executor import Executor
from sampa.execution.parallel.groups import everyone
from sampa.optimizer import SharpnessAware


class Layout(NamedTuple):
    """The place of a rank in the mesh branch × data; one process is a mesh of one."""

    branches: int
    data_ranks: int
    branch: int
    data_rank: int


def layout_of(executor: Executor | None) -> Layout:
    """How the ranks of an executor are laid out."""
    if executor is None or executor.mesh is None:
        return Layout(1, 1, 0, 0)
    branches, data_ranks = executor.mesh.shape
    return Layout(branches, data_ranks, executor.branch, executor.data_rank)


def whole_state(optimizer: SharpnessAware) -> dict[str, Any]:
    """The state of all ranks in one dictionary; with several data ranks all of them call it.

    Frameworks write the first rank's state alone. Ranks differ in nothing but their parts of the
    held batch.
    """
    state = optimizer.state_dict()
    layout = layout_of(optimizer.executor)
    if layout.data_ranks > 1 and optimizer.method.holds_batch:
        held = everyone(state["sampa"]["held_batch"])  # rank r has data rank r % data_ranks
        state["sampa"] = {**state["sampa"], "held_batch": None, "held": held[: layout.data_ranks]}
    return state


def load_whole_state(
    optimizer: SharpnessAware, state: dict[str, Any], to_device: Callable[[Any], Any]
) -> None:
    """Load what `whole_state` made.

    Args:
        optimizer: Of the same method, on as many data ranks.
        state: From `whole_state`.
        to_device: Brings a batch to where the framework brings those of its loaders.

    Raises:
        ValueError: If the state was saved on another number of data ranks.
    """
    ours, layout = state.get("sampa"), layout_of(optimizer.executor)
    if isinstance(ours, dict):
        held = ours.get("held", [ours.get("held_batch")] * (layout.data_ranks == 1))
        if optimizer.method.holds_batch and len(held) != layout.data_ranks:
            raise ValueError(
                f"the number of data ranks must be as saved ({len(held) or 1}), because each holds "
                f"its part of a batch, got {layout.data_ranks}; start as many processes as before"
            )
        batch = held[layout.data_rank] if held else None
        batch = None if batch is None else to_device(batch)
        state = {**state, "sampa": {**ours, "held_batch": batch}}
    optimizer.load_state_dict(state)
