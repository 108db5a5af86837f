"""From times to results: ratios, tables, the file, and advice."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any

from sampa.lab.bench.rounds import Measured, Seconds

RATIOS = (
    ("sam", "sampa"),
    ("sampa", "sgd"),
    ("sampa", "limit"),
    ("ddp_sam", "sampa"),
    ("ddp_sgd", "sgd"),
    ("pytorch_optimizer_sam", "sam"),
    ("sam", "sgd"),
    ("looksam", "sgd"),
    ("ae-sam", "sgd"),
    ("saf", "sgd"),
    ("mesa", "sgd"),
    ("esam", "sgd"),
)


@dataclass(frozen=True)
class Ratio:
    """The median of paired ratios, with its quartiles."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio(seconds: Seconds, above: str, below: str) -> Ratio:
    """How long a step of `above` takes, in steps of `below` of the same round."""
    paired = [a / b for a, b in zip(seconds[above], seconds[below], strict=True)]
    low, median, high = _quartiles(paired)
    return Ratio(median, low, high)


def _quartiles(values: list[float]) -> list[float]:
    if len(values) == 1:
        return values * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def ratios(seconds: Seconds) -> dict[str, Ratio]:
    """Those of `RATIOS` whose contenders both took part."""
    return {f"{a}/{b}": ratio(seconds, a, b) for a, b in RATIOS if a in seconds and b in seconds}


def summary(
    measured: Measured, memory: dict[str, int], conditions: dict[str, Any]
) -> dict[str, Any]:
    """What `--json` writes."""
    seconds = measured.seconds
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    sampa = measured.counts.get("sampa")
    exposed = [a - b for a, b in zip(seconds["sampa"], seconds["limit"], strict=True)]
    return {
        "ratios": {name: asdict(r) for name, r in ratios(seconds).items()},
        "milliseconds": {name: 1e3 * median for name, median in medians.items()},
        # Nearer to a machine without neighbours, who make steps longer and never shorter.
        "fast_milliseconds": {name: 1e3 * _quartiles(times)[0] for name, times in seconds.items()},
        "exposed_milliseconds": 1e3 * statistics.median(exposed),
        "bytes_per_rank": None if sampa is None else sampa.gradient_bytes + sampa.header_bytes,
        "counts": {name: asdict(c) for name, c in measured.counts.items()},
        "peak_memory": memory,
        "rounds": len(seconds["sgd"]),
        "conditions": conditions,
    }


def advice(result: dict[str, Any]) -> str:
    """Two sentences: what to use here, and why."""
    ms = result["milliseconds"]
    ways = {
        "SAM on one device": ms["sam"],
        "SAMPa on two devices": ms["sampa"],
        "data-parallel SAM on two devices": ms["ddp_sam"],
    }
    best, slowest = min(ways, key=ways.__getitem__), max(ways, key=ways.__getitem__)
    problem = result["conditions"]["problem"]
    others = ", ".join(f"{name} {t:.1f}" for name, t in ways.items() if name != best)
    halves = ms["ddp_sgd"] / ms["sgd"]
    first = (
        f"For {problem['model']} with batch {problem['batch_size']} on this machine use {best}: "
        f"a step takes {ways[best]:.1f} ms ({others}; SGD on one device {ms['sgd']:.1f}), "
        f"{ways[slowest] / ways[best]:.2f} times as fast as {slowest}."
    )
    more = (
        "with four or more devices combine both (SAMPa x data-parallel)"
        if halves < 0.75
        else "more devices help little at this batch size, so give extra ones larger batches"
    )
    return f"{first} Half a batch takes {halves:.2f} of a whole one's time, so {more}."
