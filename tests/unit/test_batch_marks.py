"""The mark of a batch depends on every byte and its place, and nothing waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from sampa.batches import walk
from sampa.execution.parallel import agreement
from sampa.execution.parallel.agreement import SMALL_BATCH, BatchMark
from sampa.execution.parallel.reduced import chosen_bucket_mb
from sampa.execution.parallel.route import device_of

DTYPES = [torch.uint8, torch.bool, torch.float16, torch.float32, torch.int64, torch.complex64]


def mark_on_cpu(batch: Any) -> float:
    return BatchMark(walk(batch)).value(torch.zeros(())).item()


def mark_on_device(batch: Tensor) -> float:
    """What a device computes, computed here."""
    return agreement._sum_of_hashes(batch).item()


MARKS = [mark_on_cpu, mark_on_device]


def samples(dtype: torch.dtype, n: int = 24) -> Tensor:
    values = torch.randint(0, 2, (n, 3), generator=torch.Generator().manual_seed(0))
    return values.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mark", MARKS)
def test_every_element_and_every_place_counts(
    mark: Callable[[Tensor], float], dtype: torch.dtype
) -> None:
    batch = samples(dtype)
    changed = batch.clone()
    changed.view(-1)[-1] = int(changed.view(-1)[-1] == 0)
    swapped = batch.clone()
    is_one = (batch.abs() if batch.is_complex() else batch).flatten().bool()
    i, j = int(is_one.nonzero()[0]), int((~is_one).nonzero()[0])
    swapped.view(-1)[[i, j]] = swapped.view(-1)[[j, i]]
    found = {mark(b) for b in (batch, changed, swapped, batch.flip(0), batch[:-1])}
    assert len(found) == 5
    assert mark(batch.clone()) == mark(batch)


def test_a_number_and_its_negative_that_changed_places_are_seen_on_a_device() -> None:
    """They differ in the uppermost bit, which sums with even weights lose."""
    batch = torch.tensor([1.5, -1.5, 2.0, -2.0])
    assert mark_on_device(batch) != mark_on_device(batch[[1, 0, 2, 3]])
    assert mark_on_device(batch) != mark_on_device(batch[[1, 0, 3, 2]])


def test_a_large_batch_is_hashed_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for it before the mark is asked for."""
    release, threads = threading.Event(), []

    def slow(tensors: list[Tensor]) -> int:
        threads.append(threading.current_thread())
        release.wait(30)
        return 7

    monkeypatch.setattr(agreement, "_checksum", slow)
    mark = BatchMark((torch.zeros(SMALL_BATCH), torch.zeros(3)))
    release.set()
    assert mark.value(torch.zeros(())).item() == 7
    assert threads != [threading.current_thread()]


def test_large_and_small_batches_are_hashed_whole() -> None:
    for size in (10, SMALL_BATCH):
        batch = torch.arange(size, dtype=torch.float32)
        *structure, data = [c for leaf in walk((batch,)) for c in agreement._chunks(leaf)]
        before = zlib.crc32(b"".join(c for c in structure if isinstance(c, bytes)))
        assert data is batch
        assert mark_on_cpu((batch,)) == zlib.crc32(batch.numpy().tobytes(), before)


def test_a_batch_on_a_device_is_marked_there_and_nothing_is_asked() -> None:
    """`.item()` and `.cpu()` of a fake tensor's value raise."""
    with FakeTensorMode():
        batch = torch.empty(8, 3, 4, device="cuda"), torch.empty(8, dtype=torch.int64)
        mark = BatchMark(batch[:1]).value(torch.empty((), device="cuda"))
        assert (mark.device.type, mark.dtype, mark.shape) == ("cuda", torch.float64, (1,))


def test_buffers_that_were_left_on_another_device_are_refused() -> None:
    model = nn.BatchNorm1d(3, device="meta")
    model.register_buffer("table", torch.zeros(2))
    with pytest.raises(ValueError, match=r"parameters on meta and 1 buffer.*'table'"):
        device_of(model)


@pytest.mark.parametrize(("megabytes", "expected"), [(1, 0.5), (16, 1), (160, 10), (4000, 25)])
def test_buckets_are_a_sixteenth_of_the_gradient_within_bounds(
    megabytes: int, expected: float
) -> None:
    model = nn.Linear(1 << 18, megabytes, bias=False, device="meta")
    assert chosen_bucket_mb(model) == expected


def in_a_process(lines: str) -> subprocess.CompletedProcess[str]:
    program = f"import os, torch\nfrom sampa.execution.parallel.agreement import BatchMark\n{lines}"
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # OpenMP's own do not outlive a fork
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, env=one_thread, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.slow
def test_a_process_that_ends_while_a_batch_is_hashed_ends_in_its_own_way() -> None:
    """A thread inside of torch when Python ends would abort it."""
    lines = "x = torch.zeros(5000, 5000)\nmark = BatchMark([x.t()])\nraise SystemExit(3)"
    done = in_a_process(lines)
    assert (done.returncode, done.stderr) == (3, "")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_hashes_with_a_thread_of_its_own() -> None:
    lines = """
def mark():
    return BatchMark([torch.ones(1 << 20)]).value(torch.zeros(())).item()
before = mark()
child = os.fork()
if child == 0:
    os._exit(0 if mark() == before else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert in_a_process(lines).returncode == 0
