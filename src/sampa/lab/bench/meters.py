"""How long work takes and how much memory it needs: on the host, or on an accelerator.

An accelerator works through a queue while Python is already further on, so its times are taken by
events in that queue, and its memory is counted by its own allocator.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch


class Meter(Protocol):
    """Times and memory of one device."""

    def wait(self) -> None:
        """Wait until the device has done everything that was asked of it."""
        ...

    def seconds(self, work: Callable[[], Any]) -> float:
        """From the call of the work to the end of all that it asked of the device."""
        ...

    def peak_bytes(self) -> int:
        """The most memory that this process ever had in use on the device."""
        ...


class HostMeter:
    """Work on the CPU is done when it returns; its memory is what is resident."""

    def wait(self) -> None:
        pass

    def seconds(self, work: Callable[[], Any]) -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    def peak_bytes(self) -> int:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@dataclass(frozen=True)
class DeviceMeter:
    """Times by events in the queue of an accelerator, memory as its allocator counts it."""

    device: torch.device

    def wait(self) -> None:
        torch.accelerator.synchronize(self.device)

    def seconds(self, work: Callable[[], Any]) -> float:
        self.wait()  # an event is passed at once if nothing is queued before it
        begin, end = (torch.Event(self.device, enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    def peak_bytes(self) -> int:
        return torch.accelerator.max_memory_allocated(self.device)


def meter_of(device: torch.device) -> Meter:
    """The meter that suits a device."""
    return HostMeter() if device.type == "cpu" else DeviceMeter(device)
