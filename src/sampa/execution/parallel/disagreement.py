"""What ranks that disagree are told: which of them, about what, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from torch import Tensor

CHANGED = -1.0  # no batch's mark is negative; below it, one less for each parameter: see UnusedMark
BEGAN = 2.0**54  # no batch's mark is as large; see BufferMark


def refuse_marks(
    marks: Tensor, step: int, names: Mapping[Tensor, str], buffer_names: Callable[[], Sequence[str]]
) -> NoReturn:
    """Raise what the marks of all ranks say: see `Agreement.doubt_about`."""
    unused = marks < CHANGED
    if unused.any():
        name = list(names.values())[int(CHANGED - marks.min()) - 1]
        raise RuntimeError(
            f"step {step}: no gradient arrived for {name!r} on rank(s) {ranks_where(unused)}; "
            "if it does not take part in every pass, use "
            "sampa.distribute(model, find_unused_parameters=True); if it was replaced in the "
            "model, give the optimizer the new one"
        )
    if (marks == CHANGED).any():
        ranks = ranks_where(marks == CHANGED)
        raise RuntimeError(
            f"step {step}: other parameters are trained now, or other buffers registered, on "
            f"rank(s) {ranks} only; freeze, unfreeze and add parameters (requires_grad, "
            "add_param_group), and register buffers, on every rank before the same step"
        )
    if (marks >= BEGAN).any():
        first = marks.max()
        name = buffer_names()[int(first / BEGAN) >> 32]
        raise RuntimeError(
            f"step {step}: buffer {name!r} began to change on rank(s) "
            f"{ranks_where(marks == first)} only; a buffer that the first training pass left "
            "alone may be written later if all ranks begin with it in the same pass: let the "
            f"layer write to it in every training pass (`self.{name.split('.')[-1]}.mul_(1)` "
            "is enough)"
        )
    raise RuntimeError(
        f"step {step}: the branches got different batches: those of rank(s) "
        f"{ranks_where(marks != marks[:1])} are not what branch 0 has; branches must see the "
        "same batches in the same order; write DataLoader(dataset, "
        "sampler=executor.sampler(dataset)) and seed random augmentation alike"
    )


def refuse_replicas(name: str, ranks: list[int], step: int, *, is_parameter: bool) -> NoReturn:
    """Raise that a parameter or a buffer is not the same everywhere."""
    rule = (
        "weights must change in optimizer.step only, or by the same operation on every rank (load "
        "checkpoints on all of them)"
    )
    if not is_parameter:
        rule = (
            "a buffer that training passes leave alone must stay as it is, unless the same is "
            "written on every rank; and a layer that begins to write later must do so with torch's "
            "in-place operations or by assignment, not with what does not raise a tensor's version "
            "(F.batch_norm, .data)"
        )
    raise RuntimeError(
        f"step {step}: the replicas differ: {name!r} on rank(s) {ranks} is not what rank 0 has; "
        f"{rule}"
    )


def ranks_where(flags: Tensor) -> list[int]:
    """The ranks of a mesh branch × data that have a flag."""
    return flags.flatten().nonzero().flatten().tolist()
