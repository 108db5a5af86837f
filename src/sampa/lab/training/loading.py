"""Batches on their way to the device: made and copied while the step before them still runs."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch

from sampa.batches import tensors_in
from sampa.lab.devices import has_streams, in_suited_layout
from sampa.samples import map_tensors


class Batches(Protocol):
    """The batches of an epoch, each by its number."""

    def __len__(self) -> int: ...

    def batch(self, epoch: int, number: int) -> Any: ...


@dataclass(frozen=True)
class Loaded:
    """A batch whose copy to the device may still be under way.

    Attributes:
        arrived: Passed when the copy is complete; None if it is.
    """

    batch: Any
    arrived: torch.Event | None = None


class Loader:
    """The batches of a run on their device, by their number since its beginning.

    Looking ahead changes none of them, and a run that is resumed at any batch sees what an
    uninterrupted one sees.

    Args:
        batches: On the host, a pure function of epoch and number.
        epochs: How many there are: nothing is made beyond the last batch.
        device: Where batches are needed.
        prefetch: Let a thread make the batch after the one that was asked for and copy it on a
            stream of its own. By default where the device is not the CPU: there the thread would
            take its time from the step. Never where batches seed generators that a step uses.
    """

    def __init__(
        self,
        batches: Batches,
        epochs: int,
        device: torch.device,
        prefetch: bool | None = None,
    ) -> None:
        self._batches, self._epochs, self._device = batches, epochs, device
        wanted = device.type != "cpu" if prefetch is None else prefetch
        ahead = wanted and getattr(batches, "may_be_ahead", True)
        # All copies are made by one thread: a stream cannot be entered by two at once.
        self._thread = ThreadPoolExecutor(1, "sampa-loader") if ahead else None
        self._begun: dict[int, Future[Loaded]] = {}

    @cached_property
    def _stream(self) -> torch.Stream:
        return torch.Stream(self._device)

    def batch(self, position: int) -> Any:
        """The batch with that number; with prefetch, the one after it is begun."""
        if self._thread is None:
            return self._arrived(self._load(position))
        self._begin(self._thread, position)
        loaded = self._begun.pop(position).result()
        if position + 1 < self._epochs * len(self._batches):
            self._begin(self._thread, position + 1)
        return self._arrived(loaded)

    def _begin(self, thread: ThreadPoolExecutor, position: int) -> None:
        if position not in self._begun:
            self._begun[position] = thread.submit(self._load, position)

    def _load(self, position: int) -> Loaded:
        batch = self._batches.batch(*divmod(position, len(self._batches)))
        batch = map_tensors(lambda t: in_suited_layout(t, self._device), batch)
        if not has_streams(self._device):
            return Loaded(map_tensors(lambda t: t.to(self._device), batch))
        with self._stream:
            # Only a copy from pinned memory can run beside the step's work.
            pinned = map_tensors(lambda t: t.pin_memory(), batch)
            copied = map_tensors(lambda t: t.to(self._device, non_blocking=True), pinned)
            return Loaded(copied, self._stream.record_event())

    def _arrived(self, loaded: Loaded) -> Any:
        """The batch, for use in the current stream, which waits for it; the host does not."""
        if loaded.arrived is not None:
            current = torch.accelerator.current_stream(self._device)
            current.wait_event(loaded.arrived)
            for tensor in tensors_in(loaded.batch):
                # Its memory belongs to the other stream, which must not reuse it too early.
                tensor.record_stream(current)
        return loaded.batch
