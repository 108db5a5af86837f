"""The result of a benchmark: ratios of times, counts and memory, and advice."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sampa.lab.bench.own_cost import OwnCost
from sampa.lab.bench.rounds import Counts, StepTimes
from sampa.lab.bench.workloads import Workload
from sampa.lab.conditions import Conditions
from sampa.lab.results.summary import Quartiles, quartiles

RATIOS = (
    ("sam", "sampa"),
    ("sampa", "sgd"),
    ("sampa", "limit"),
    ("ddp_sam", "sampa"),
    ("ddp_sgd", "sgd"),
    ("pytorch_optimizer_sam", "sam"),
    *((name, "sgd") for name in ("sam", "looksam", "ae-sam", "saf", "mesa", "esam")),
)


@dataclass(frozen=True)
class BenchResult:
    """What `sampa bench --json` writes, field by field.

    Attributes:
        ratios: Of step times, paired within a round; the name is "above/below".
        milliseconds: The median of each contender's step.
        fast_milliseconds: The lower quartile, nearer to what a machine without neighbors would
            give: they make steps longer and never shorter.
        exposed_milliseconds: How much longer a step of SAMPa is than the limit.
        bytes_per_rank: What a rank sends in a step of SAMPa.
        counts: What steps of our methods do.
        peak_memory: Bytes by contender.
        conditions: As recorded with every result; "problem" is the workload.
        own_cost: Steps beyond their gradients, where measured.
    """

    ratios: dict[str, Quartiles]
    milliseconds: dict[str, float]
    fast_milliseconds: dict[str, float]
    exposed_milliseconds: float
    bytes_per_rank: float | None
    counts: dict[str, Counts]
    peak_memory: dict[str, int]
    rounds: int
    conditions: Conditions
    own_cost: Sequence[OwnCost] = ()

    @property
    def workload(self) -> Workload:
        return Workload(**self.conditions.values["problem"])

    @staticmethod
    def from_json(values: dict[str, Any]) -> BenchResult:
        return replace(
            BenchResult(**values),
            ratios={name: Quartiles(**r) for name, r in values["ratios"].items()},
            counts={name: Counts(**c) for name, c in values["counts"].items()},
            conditions=Conditions.from_json(values["conditions"]),
            own_cost=[OwnCost(**c) for c in values.get("own_cost", ())],
        )

    def as_json(self) -> dict[str, Any]:
        values = {**asdict(self), "conditions": self.conditions.values}
        return {k: v for k, v in values.items() if k != "own_cost" or v}


def result_of(
    seconds: StepTimes,
    counts: dict[str, Counts],
    peak_memory: dict[str, int],
    conditions: Conditions,
    own_cost: Sequence[OwnCost] = (),
) -> BenchResult:
    """The result of what was measured."""
    sampa = counts.get("sampa")
    exposed = [a - b for a, b in zip(seconds["sampa"], seconds["limit"], strict=True)]
    each = {name: quartiles([1e3 * t for t in times]) for name, times in seconds.items()}
    return BenchResult(
        ratios=paired_ratios(seconds),
        milliseconds={name: q.median for name, q in each.items()},
        fast_milliseconds={name: q.low for name, q in each.items()},
        exposed_milliseconds=1e3 * statistics.median(exposed),
        bytes_per_rank=None if sampa is None else sampa.bytes_sent,
        counts=counts,
        peak_memory=peak_memory,
        rounds=len(seconds["sgd"]),
        conditions=conditions,
        own_cost=own_cost,
    )


def paired_ratios(seconds: StepTimes) -> dict[str, Quartiles]:
    """Those of `RATIOS` whose contenders both took part: one in steps of the other, by round."""
    return {
        f"{above}/{below}": quartiles(
            [a / b for a, b in zip(seconds[above], seconds[below], strict=True)]
        )
        for above, below in RATIOS
        if above in seconds and below in seconds
    }


def advice(result: BenchResult) -> str:
    """Two sentences: what to use here, and why."""
    ms = result.milliseconds
    ways = {
        "SAM on one device": ms["sam"],
        "SAMPa on two devices": ms["sampa"],
        "data-parallel SAM on two devices": ms["ddp_sam"],
    }
    best, *others = sorted(ways, key=ways.__getitem__)
    slower = ", ".join(f"{name} {ways[name]:.1f}" for name in others)
    halves = ms["ddp_sgd"] / ms["sgd"]
    more = (
        "with four or more devices combine both (SAMPa x data-parallel)"
        if halves < 0.75
        else "more devices help little at this batch size, so give extra ones larger batches"
    )
    return (
        f"For {result.workload.model} with batch {result.workload.batch_size} on this machine use "
        f"{best}: a step takes {ways[best]:.1f} ms ({slower}; SGD on one device {ms['sgd']:.1f}), "
        f"{ways[others[-1]] / ways[best]:.2f} times as fast as {others[-1]}. "
        f"Half a batch takes {halves:.2f} of a whole one's time, so {more}."
    )
