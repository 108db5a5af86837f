"""How steps would go on many devices: a cost model, fed with what was measured on this machine.

n devices share a batch, s samples each. What a step waits for, one after the other:

    t(s) = fixed + s · per sample                         a gradient and its update
    wire(n) = 2 (n − 1) / n · bytes / link + 2 ⌈log₂ n⌉ · latency        an average over n
    exposed = max(0, wire − backward) + one bucket        what backward does not hide, at most wire
    straggling(n) = jitter · √(2 ln n) · t                the slowest of n

    SGD             t(s) + exposed(n) + straggling(n)
    SAM             two of those, one after the other
    SAMPa, 2 × n/2  t(2 s), the average over n/2 and the exchange of the branches, straggling(n)

SAMPa waits once where data-parallel SAM waits twice, for the fixed part of a gradient too; its
devices compute twice the samples in it. So a second branch pays where a device's share is small,
and not where time is all in the samples.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from sampa.execution.parallel.reduced import bucket_mb_of
from sampa.lab.bench.result import BenchResult
from sampa.lab.results.table import Table, number_cell, row

LATENCY = 20e-6  # seconds, of one message within a cluster
BACKWARD = 2 / 3  # of a gradient's time
WORTH = 1.03  # a second branch is not worth the trouble for less
BITS = {"mbit": 1e6, "gbit": 1e9}  # per second
SHOWN = (8, 64, 1024)
MOST_SAMPLES = 1 << 20  # of a device
LOWER_QUARTILE = 0.6745  # of a normal distribution, in standard deviations below the median


def exposed_time(wire: float, backward: float, bucket: float) -> float:
    """The wait for a gradient of which a share `bucket` is sent at a time while backward runs."""
    return min(wire, max(0.0, wire - backward) + bucket * wire)


@dataclass(frozen=True)
class Cluster:
    """Devices as fast as the measured one, joined by a link.

    Attributes:
        fixed: Seconds of a gradient and its update that do not depend on the samples.
        per_sample: Seconds more for each sample.
        jitter: Standard deviation of a step's time, relative to it.
        gradient_bytes: What an average exchanges.
        link: Bytes per second of each device, in both directions at once.
        latency: Seconds of a message.
    """

    fixed: float
    per_sample: float
    jitter: float
    gradient_bytes: float
    link: float
    latency: float = LATENCY

    def gradient(self, samples: float) -> float:
        """t(s)."""
        return self.fixed + self.per_sample * samples

    def sgd(self, devices: int, samples: float) -> float:
        return self._step(samples, self.average(devices), devices)

    def sam(self, devices: int, samples: float) -> float:
        """Data-parallel: a second gradient after the first."""
        return 2 * self.sgd(devices, samples)

    def sampa(self, devices: int, samples: float) -> float:
        """Two branches of half the devices each."""
        wire = self.average(devices // 2) + self.gradient_bytes / self.link + self.latency
        return self._step(2 * samples, wire, devices)

    def average(self, devices: int) -> float:
        """Seconds of wire for the mean of a gradient over a ring of devices."""
        if devices == 1:
            return 0.0
        sent = 2 * (devices - 1) / devices * self.gradient_bytes
        return sent / self.link + 2 * math.ceil(math.log2(devices)) * self.latency

    def exposed(self, wire: float, backward: float) -> float:
        """What of the wire's time a step waits for: all but what backward hides, and a bucket."""
        megabytes = self.gradient_bytes / 2**20
        return exposed_time(wire, backward, bucket_mb_of(megabytes) / megabytes)

    def most_samples(self, devices: int) -> int | None:
        """The largest share of a device at which a second branch pays; None if it always does."""

        def is_too_large(samples: int) -> bool:
            return self.sam(devices, samples) < WORTH * self.sampa(devices, samples)

        shares = range(1, MOST_SAMPLES)
        pays = bisect_left(shares, True, key=is_too_large)  # how many of them do
        return None if pays == len(shares) else pays

    def _step(self, samples: float, wire: float, devices: int) -> float:
        t = self.gradient(samples)
        straggling = self.jitter * math.sqrt(2 * math.log(devices)) * t
        return t + self.exposed(wire, BACKWARD * t) + straggling


def cluster_of(result: BenchResult, gigabits: float) -> Cluster:
    """Devices as fast as the measured ones: SGD's step with a whole batch, and with half of one."""
    samples = result.workload.batch_size
    whole, half = (result.milliseconds[name] / 1e3 for name in ("sgd", "ddp_sgd"))
    fixed = min(max(0.0, 2 * half - whole), whole)
    fast = result.fast_milliseconds["sgd"] / 1e3
    return Cluster(
        fixed=fixed,
        per_sample=(whole - fixed) / samples,
        jitter=(whole - fast) / LOWER_QUARTILE / whole,
        gradient_bytes=result.counts["sampa"].gradient_bytes,
        link=gigabits * 1e9 / 8,
    )


def scaling_table(result: BenchResult, gigabits: float, devices: Sequence[int] = SHOWN) -> Table:
    """Predicted step times, each device with as many samples as were measured."""
    cluster, samples = cluster_of(result, gigabits), result.workload.batch_size
    rows = []
    for n in devices:
        alone = 1e3 * 2 * cluster.gradient(n * samples)
        sgd, sam, sampa = (1e3 * f(n, samples) for f in (cluster.sgd, cluster.sam, cluster.sampa))
        most = cluster.most_samples(n)
        pays = "always" if most is None else f"up to {most}" if most else "never"
        times = (number_cell(t, ".1f") for t in (alone, sgd, sam, sampa))
        rows.append(row(n, *times, number_cell(sam / sampa, ".2f"), pays))
    names = ("SAM on one", "SGD", "SAM", "SAMPa", "SAM / SAMPa")
    columns = ("devices", *names, "second branch pays")
    notes = (
        "Milliseconds of a step. SGD and SAM are data-parallel; SAMPa has two branches of half the "
        "devices; one device has all samples.",
        f"second branch pays: samples of a device up to which SAM / SAMPa is at least {WORTH:.2f}.",
    )
    title = f"Predicted: {result.workload} on each device, links of {gigabits:g} Gbit/s"
    return Table(title, columns, tuple(rows), notes)


@dataclass(frozen=True)
class MeasuredLink:
    """What steps of SAMPa waited for on two machines that a link of a known rate joined.

    Attributes:
        rate: As tc writes it, such as 100mbit; "unshaped" for one without a bound.
        chosen: Whether the size of buckets was the library's choice.
        bucket_mb: Their size.
        gradient_bytes: What each machine sent in a step.
        milliseconds: Medians of "backward", "wait" and "step".
        rounded_to: The dtype in which gradients travelled, if it was another than their own.
    """

    rate: str
    chosen: bool
    bucket_mb: float
    gradient_bytes: int
    milliseconds: dict[str, float]
    rounded_to: str | None = None

    @property
    def wire(self) -> float:
        """Milliseconds of the bytes on the wire; 0 where the rate has no bound."""
        found = re.fullmatch(r"(\d+)(mbit|gbit)", self.rate)
        if found is None:
            return 0.0
        return 1e3 * 8 * self.gradient_bytes / (float(found[1]) * BITS[found[2]])

    @property
    def bound(self) -> float:
        """What the model says of the wait, in milliseconds."""
        sent = self.bucket_mb * 2**20 / (1 if self.rounded_to is None else 2)
        return exposed_time(self.wire, self.milliseconds["backward"], sent / self.gradient_bytes)


def link_table(links: Sequence[MeasuredLink]) -> Table:
    """The exchange's wait at each rate and size of buckets, beside the model's."""
    rows = tuple(
        row(
            link.rate if link.rounded_to is None else f"{link.rate}, {link.rounded_to}",
            f"{link.bucket_mb:g}" + (" (chosen)" if link.chosen else ""),
            *(
                number_cell(value, ".0f")
                for value in (
                    link.wire,
                    link.milliseconds["backward"],
                    link.milliseconds["wait"],
                    link.bound,
                    link.milliseconds["step"],
                )
            ),
        )
        for link in links
    )
    columns = ("link", "bucket MB", "wire ms", "backward ms", "wait ms", "predicted ms", "step ms")
    return Table("What a step of SAMPa waits for its exchange", columns, rows)


def check_table(results: Sequence[BenchResult]) -> Table:
    """The model for two devices without a network, beside what two processes took."""
    rows = []
    for result in results:
        cluster, half = cluster_of(result, math.inf), result.workload.batch_size / 2
        for name, label, predicted in (
            ("ddp_sam", "SAM, data-parallel", cluster.sam(2, half)),
            ("sampa", "SAMPa", cluster.sampa(2, half)),
        ):
            measured = result.milliseconds[name]
            ratio = number_cell(1e3 * predicted / measured, ".2f")
            numbers = (number_cell(v, ".1f") for v in (1e3 * predicted, measured))
            rows.append(row(str(result.workload), label, *numbers, ratio))
    columns = ("", "method", "predicted ms", "measured ms", "predicted / measured")
    return Table("The model beside what was measured on two processes", columns, tuple(rows))
