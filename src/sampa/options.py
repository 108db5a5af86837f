"""The keywords that every method takes besides its own."""

from __future__ import annotations

from typing import TypedDict

from torch.amp.grad_scaler import GradScaler

from sampa.execution.executor import Executor


class Options(TypedDict, total=False):
    """Keywords that every method takes besides its own.

    Attributes:
        executor: From `sampa.distribute`; None computes everything in this process.
        max_norm: Clip the gradient handed to the base optimizer to this norm.
        accumulate: Cut each batch into this many micro-batches; the gradient is the whole batch's.
        scaler: A torch GradScaler for fp16. Pass it here and do not call its `step` or `update`.
        perturb_eps: Added to a norm before dividing by it.
        same_noise: Let both passes over a batch see the same dropout masks.
        seed: Of dropout and random directions; torch's initial seed if not given.
        save_batch: Put the held batch into `state_dict`; if not, hand it back with `hold`.
        max_skips: Raise after this many steps in a row with a gradient that is not finite.
        sync_perturbation: Whether data ranks perturb by their common gradient (the result does not
            depend on how many there are) or each by its own (m-sharpness, one pass less to sync).
    """

    executor: Executor | None
    max_norm: float | None
    accumulate: int
    scaler: GradScaler | None
    perturb_eps: float
    same_noise: bool
    seed: int | None
    save_batch: bool
    max_skips: int
    sync_perturbation: bool
