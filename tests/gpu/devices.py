"""On which devices a test runs, and how to count what happens on them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

# The same functions run on the CPU, in `make test`: that shows that the tests themselves work.
ONE_DEVICE = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
TWO_DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu(2))]


@contextmanager
def deterministic(device: str) -> Iterator[None]:
    """Only kernels whose result does not depend on the order in which threads finish."""
    if device == "cpu":
        yield
        return
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read when cuBLAS is first used
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


class _Reads(TorchDispatchMode):
    """Counts the numbers that Python reads out of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def waits(work: Callable[[], Any], device: str) -> int:
    """How often the host waited for the device; on the CPU, how often it would have.

    Waiting for an event is not counted on CUDA: torch does not tell.
    """
    if device == "cpu":
        with _Reads() as reads:
            work()
        return reads.count
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("called a synchronizing" in str(warning.message) for warning in caught)
