"""What `sampa bench --count` finds out, and a table of it beside what it was before."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from sampa.batches import Watched
from sampa.execution.parallel.agreement import BatchMark
from sampa.lab.bench.counting import StepCount, count_reduction, count_steps
from sampa.lab.bench.host_time import HostTime, host_time
from sampa.lab.bench.own_cost import Shapes
from sampa.lab.conditions import Conditions
from sampa.lab.results.table import Table, row
from sampa.vectors.random import RandomNumbers
from sampa.vectors.reductions import global_norms, inner_product

IMAGE = (3, 224, 224)
MARKED = (64, 256)  # images in a batch of ImageNet
DRAWN_NUMBERS = 86_000_000  # as many numbers as ViT-B has parameters


@dataclass(frozen=True)
class Counted:
    """What a step asks of a device and of the host, as `sampa bench --count --json` writes it.

    Attributes:
        model: Whose parameters.
        steps: Counted on fake CUDA tensors.
        norm: Launches of a norm over all parameters, ...
        product: ... and of a product.
        host: The host's own time.
        mark: Milliseconds before forward for the mark of a batch of ImageNet on the CPU, by images.
        draw: Seconds for as many random numbers as ViT-B has parameters, on the CPU.
        conditions: As recorded with every result.
    """

    model: str
    steps: Sequence[StepCount]
    norm: int
    product: int
    host: HostTime
    mark: dict[str, float]
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
    return Counted(
        model=model,
        steps=count_steps(shapes),
        norm=count_reduction(lambda ts: global_norms([ts])[0], shapes).launches,
        product=count_reduction(
            lambda ts: inner_product([*zip(ts, ts, strict=True)]), shapes
        ).launches,
        host=host_time(),
        mark={str(images): 1e3 * mark_seconds(images) for images in MARKED},
        draw=draw_seconds(),
        conditions=Conditions.now(),
    )


def mark_seconds(images: int, turns: int = 20) -> float:
    """From the call of `step` on: what is done with a batch on the CPU before forward begins."""
    batch = torch.zeros(images, *IMAGE), torch.zeros(images, dtype=torch.long)
    marks: list[BatchMark] = []

    def receive() -> None:
        Watched(batch)
        marks.append(BatchMark(batch))

    times: list[float] = []
    for _ in range(turns):
        times.append(_seconds(receive))
        marks.pop().value(batch[0])  # waits for the thread, as a step does after its backward
    return statistics.median(times)


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
    mark = " / ".join(f"{ms:.2f}" for ms in now.mark.values())
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
    "buffers": "parameter-sized buffers with momentum, SAM / SAMPa",
    "adamw": "the same of SAMPa with AdamW, fused / foreach",
    "draw": f"{DRAWN_NUMBERS:,} uniform numbers on one core, s",
}
