"""The cost model against numbers worked out by hand, and against what was measured."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from sampa.lab.bench.result import BenchResult
from sampa.lab.bench.scaling import Cluster, MeasuredLink, cluster_of, exposed_time
from tools.performance_tables import LINKS, bench_records

MB = 2**20
# No network, no jitter: t(s) = 3 + s.
FREE = Cluster(fixed=3, per_sample=1, jitter=0, gradient_bytes=32 * MB, link=math.inf, latency=0)


def test_a_second_branch_saves_the_fixed_part_of_a_gradient() -> None:
    assert FREE.sgd(8, 5) == 8
    assert FREE.sam(8, 5) == 16
    assert FREE.sampa(8, 5) == 13


def test_it_pays_up_to_the_share_where_that_is_three_percent() -> None:
    """2 (3 + s) >= 1.03 (3 + 2 s) for s <= 48.5."""
    assert FREE.most_samples(8) == 48
    assert replace(FREE, fixed=0).most_samples(8) == 0
    assert replace(FREE, per_sample=0).most_samples(8) is None


def test_an_average_sends_twice_what_a_ring_keeps() -> None:
    cluster = replace(FREE, link=MB, latency=0.5)
    assert cluster.average(1) == 0
    assert cluster.average(8) == 2 * 7 / 8 * 32 + 2 * 3 * 0.5


def test_backward_hides_the_wire_but_for_one_bucket() -> None:
    """Buckets of 32 MB are 2 MB, a sixteenth."""
    assert FREE.exposed(wire=16, backward=20) == 1
    assert FREE.exposed(wire=16, backward=10) == 7


def test_a_gradient_in_one_piece_takes_the_wire_and_no_longer() -> None:
    assert exposed_time(wire=16, backward=10, bucket=1) == 16
    assert exposed_time(wire=16, backward=10, bucket=25) == 16


def test_the_recorded_wait_over_a_slow_link_is_that_of_the_model() -> None:
    """With the size of buckets that the library chooses; on faster links ranks wait for ranks."""
    links = [MeasuredLink(**link) for link in json.loads(LINKS.read_text())["links"]]
    slow = [link for link in links if link.chosen and link.rate == "100mbit"]
    assert slow
    for link in slow:
        assert link.milliseconds["wait"] <= 1.1 * link.bound


def test_the_slowest_of_many_is_waited_for() -> None:
    cluster = replace(FREE, jitter=0.1)
    assert cluster.sgd(8, 5) == pytest.approx(8 * (1 + 0.1 * math.sqrt(2 * math.log(8))))


@pytest.mark.parametrize("result", bench_records(), ids=lambda result: str(result.workload))
def test_the_model_predicts_two_processes_from_one(result: BenchResult) -> None:
    """Within an eighth: with SGD's times alone, those of SAM and SAMPa."""
    cluster, half = cluster_of(result, math.inf), result.workload.batch_size / 2
    found = {"ddp_sam": cluster.sam(2, half), "sampa": cluster.sampa(2, half)}
    for name, seconds in found.items():
        assert 1e3 * seconds == pytest.approx(result.milliseconds[name], rel=1 / 8)


def test_a_link_is_read_as_tc_writes_it() -> None:
    times = {"backward": 100.0, "wait": 0.0, "step": 0.0}
    link = MeasuredLink(
        "100mbit", chosen=True, bucket_mb=0.25, gradient_bytes=MB, milliseconds=times
    )
    assert link.wire == pytest.approx(83.886, abs=1e-3)
    assert link.bound == pytest.approx(83.886 / 4, abs=1e-3)
    assert replace(link, rate="1gbit").wire == pytest.approx(8.3886, abs=1e-4)
    assert replace(link, rate="unshaped").wire == 0
