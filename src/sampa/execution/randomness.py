"""Randomness as a pure function of (seed, position), so that serial, parallel and resumed agree.

Dropout in a probe must not depend on which process runs it or on what ran before. Each probe gets
its own seed; torch's global generators are put back afterwards, so a data loader's stream does not
depend on the model's.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from sampa.method import HELD, Probe


@dataclass(frozen=True, slots=True)
class Seeds:
    """Dropout's seed for each probe: its own, or its batch's if both passes see the same noise.

    Attributes:
        seed: Of the run.
        calls: The number of the call of `step`.
        shard: The data rank.
        same_noise: Whether passes over the same batch see the same noise.
    """

    seed: int
    calls: int
    shard: int
    same_noise: bool

    def __call__(self, probe: Probe, number: int) -> int:
        if self.same_noise:
            part = (probe.samples.number,) if probe.samples.number else ()
            batch = self.calls - (probe.batch is HELD)
            return derive_seed(self.seed, "batch", batch, self.shard, *part)
        return derive_seed(self.seed, "probe", self.calls, number, self.shard)


def derive_seed(*key: int | str) -> int:
    """A 63-bit seed from a key; the same on every machine and in every process."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@contextmanager
def seeded(seed: int, devices: Iterable[torch.device]) -> Iterator[None]:
    """Run with torch's generators at `seed`, then put them back where they were."""
    indices = _indices_of(devices)
    with _forked(indices):
        # Not torch.manual_seed: it seeds every device, also those that are not put back, and where
        # one is not in use it formats a stack trace (0.3 ms each) for a call that never comes.
        torch.default_generator.manual_seed(seed)
        for index in indices.pop("cuda"):
            torch.cuda.default_generators[index].manual_seed(seed)
        for kind in indices:
            torch.get_device_module(kind).manual_seed(seed)
        yield


@contextmanager
def kept_generators(devices: Iterable[torch.device]) -> Iterator[None]:
    """Put the generators of torch, Python and NumPy back where they were."""
    numpy = sys.modules.get("numpy")  # without it nothing was drawn from it
    python_state = random.getstate()
    numpy_state = None if numpy is None else numpy.random.get_state()
    try:
        with _forked(_indices_of(devices)):
            yield
    finally:
        random.setstate(python_state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)


def _indices_of(devices: Iterable[torch.device]) -> dict[str, set[int]]:
    """The numbers of the devices of each kind, without the CPU."""
    indices: dict[str, set[int]] = {"cuda": set()}  # fork_rng asks for a kind, if only with none
    for device in devices:
        if device.type != "cpu":
            indices.setdefault(device.type, set()).add(device.index or 0)
    return indices


def _forked(indices: dict[str, set[int]]) -> ExitStack:
    """torch's generators, to be put back at the end of a block."""
    stack = ExitStack()
    for kind, some in indices.items():
        stack.enter_context(torch.random.fork_rng(devices=sorted(some), device_type=kind))
    return stack
