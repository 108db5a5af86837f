"""What `sampa bench --count` finds out, and a table of it beside what it was before."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import torch

from sampa.batches import Watched
from sampa.execution.parallel.agreement import BatchMark
from sampa.lab.bench.counting import StepCount, count_reduction, count_steps
from sampa.lab.bench.host_time import HostTime, host_time_of_starts
from sampa.lab.bench.own_cost import Shapes
from sampa.lab.conditions import Conditions
from sampa.lab.results.table import Table, row
from sampa.vectors.random import RandomNumbers
from sampa.vectors.reductions import global_norms, inner_product

IMAGE = (3, 224, 224)
MARKED = (64, 256)  # images in a batch of ImageNet
STARTS = 9  # of processes that time the host
DRAWN_NUMBERS = 86_000_000  # as many numbers as ViT-B has parameters


@dataclass(frozen=True)
class Counted:
    """What a step asks of a device and of the host, as `sampa bench --count --json` writes it.

    Attributes:
        model: Whose parameters.
        steps: Counted on fake CUDA tensors.
        norm: Launches of a norm over all parameters, ...
        product: ... and of a product.
        host: The host's own time, in the process with the median ratio of several.
        mark: Milliseconds before forward for the mark of a batch of ImageNet on the CPU, by images.
        receive: The same for noting what the batch is, by which a change of it is found later.
        draw: Seconds for as many random numbers as ViT-B has parameters, on the CPU.
        conditions: As recorded with every result.
    """

    model: str
    steps: Sequence[StepCount]
    norm: int
    product: int
    host: HostTime
    mark: dict[str, float]
    receive: dict[str, float]
    draw: float
    conditions: Conditions

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "conditions": self.conditions.values}

    @staticmethod
    def from_json(values: dict[str, Any]) -> Counted:
        return replace(
            Counted(**values),
            steps=[StepCount(**step) for step in values["steps"]],
            host=HostTime(**values["host"]),
            conditions=Conditions.from_json(values["conditions"]),
        )

    def step(self, method: str, base: str, checks: str = "now") -> StepCount:
        """One of the steps that were counted."""
        wanted = (method, base, checks)
        return next(s for s in self.steps if (s.method, s.base, s.checks) == wanted)


def count_all(model: str, shapes: Shapes) -> Counted:
    """Count and time all of it; times want a quiet machine."""
    batches = {str(images): batch_seconds(images) for images in MARKED}
    return Counted(
        model=model,
        steps=count_steps(shapes),
        norm=count_reduction(lambda ts: global_norms([ts])[0], shapes).launches,
        product=count_reduction(
            lambda ts: inner_product([*zip(ts, ts, strict=True)]), shapes
        ).launches,
        host=host_time_of_starts(STARTS),
        mark={images: 1e3 * found.mark for images, found in batches.items()},
        receive={images: 1e3 * found.receive for images, found in batches.items()},
        draw=draw_seconds(),
        conditions=Conditions.now(),
    )


class BatchSeconds(NamedTuple):
    """What is done with a batch on the CPU from the call of `step` on, before forward begins."""

    receive: float
    mark: float


def batch_seconds(images: int, turns: int = 60) -> BatchSeconds:
    """Medians; in between all bytes are hashed, as in a step, which empties the caches."""
    batch = torch.zeros(images, *IMAGE), torch.zeros(images, dtype=torch.long)
    times: list[BatchSeconds] = []
    for _ in range(turns):
        start = time.perf_counter()
        watched = Watched(batch)
        received = time.perf_counter()
        mark = BatchMark(watched.leaves)
        times.append(BatchSeconds(received - start, time.perf_counter() - received))
        mark.value(batch[0])  # waits for the thread, as a step does after its backward
    return BatchSeconds(*map(statistics.median, zip(*times, strict=True)))


def draw_seconds(turns: int = 3) -> float:
    """A vector of uniform numbers."""
    weights = [torch.empty(DRAWN_NUMBERS, requires_grad=True)]
    return min(_seconds(lambda: RandomNumbers(0).uniform(weights)) for _ in range(turns))


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def comparison_table(before: dict[str, str], now: Counted) -> Table:
    """What was found at an earlier commit, in words, beside what is counted now."""
    mark, receive = (
        " / ".join(f"{ms:.2f}" for ms in found.values()) for found in (now.mark, now.receive)
    )
    waits = f"{now.step('sam', 'sgd').waits} / {now.step('sampa', 'sgd').waits}"
    buffers = " / ".join(f"{now.step(m, 'sgd').buffers:.0f}" for m in ("sam", "sampa"))
    adamw = " / ".join(
        f"{now.step('sampa', base).buffers:.0f}" for base in ("adamw", "adamw-foreach")
    )
    found = {
        "waits": waits,
        "late": str(now.step("sampa", "adamw", "late").waits),
        "host": f"{now.host.sampa:.1f} / {now.host.by_hand:.1f} ({now.host.ratio:.2f} times)",
        "strided": str(now.step("sampa", "sgd").strided),
        "sums": f"{now.norm} / {now.product}",
        "mark": mark,
        "receive": receive,
        "buffers": buffers,
        "adamw": adamw,
        "draw": f"{now.draw:.2f}",
    }
    rows = tuple(row(COMPARED[key], before.get(key, "–"), value) for key, value in found.items())
    title = f"Before and now, {now.model} in one process where not said otherwise"
    return Table(title, ("", "before", "now"), rows)


COMPARED = {
    "waits": "waits of the host in a step, SAM / SAMPa",
    "late": 'the same of SAMPa with `checks="late"` and fused AdamW',
    "host": "own host time of a step with many short tensors, SAMPa / by hand, ms",
    "strided": "calls of `as_strided` in a step of SAMPa",
    "sums": "launches of a norm / of a product",
    "mark": f"mark of a CPU batch of {' / '.join(map(str, MARKED))} ImageNet images, ms",
    "receive": "besides, a walk through such a batch, and a trace by which a change is found, ms",
    "buffers": "parameter-sized buffers with momentum, SAM / SAMPa",
    "adamw": "the same of SAMPa with AdamW, fused / foreach",
    "draw": f"{DRAWN_NUMBERS:,} uniform numbers on one core, s",
}
