"""A time line of one step of SAMPa on two ranks, measured, as an SVG."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch.distributed as dist
from torch.autograd.profiler import record_function
from torch.profiler import ProfilerActivity, profile

from sampa.lab.bench.contenders import contenders
from sampa.lab.bench.workloads import Bench
from sampa.lab.results.axis import Axis, axis_of
from sampa.lab.results.plot import Plot, draw_ticks
from sampa.lab.results.scene import Area, Scene, Words
from sampa.lab.results.svg import to_file

STEPS_BEFORE = 4
TIMELINE_WIDTH, LANES_TOP, LANES_FROM, LANE_HEIGHT = 620.0, 26.0, 56.0, 32.0  # points
LEGEND_LINE, LEGEND_COLUMNS = 15.0, 2
PHASES = {  # what the library marks for profilers: a name, and a color of the palette
    "sampa.move": ("move", 5),
    "sampa.gradient": ("forward and backward", 2),
    "sampa.restore": ("restore", 0),
    "sampa.exchange": ("exchange (copies and waiting)", 1),
    "sampa.update": ("update", 3),
}


@dataclass(frozen=True)
class Span:
    """A phase of a step, in milliseconds since the step began."""

    phase: str
    start: float
    end: float


def record_step(bench: Bench) -> list[Span]:
    """The phases of one step on this rank; a program for every rank."""
    step = contenders()["sampa"].make(bench)
    for _ in range(STEPS_BEFORE):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        dist.barrier()
        with record_function("mark"):
            marked = time.perf_counter()  # one clock for all processes of a machine
        step()
    marks: list[Any] = [None] * bench.ranks
    dist.all_gather_object(marks, marked)
    events = profiled.events() or []
    (zero,) = [e.time_range.start for e in events if e.name == "mark"]
    zero -= (marked - min(marks)) * 1e6  # microseconds, since the first rank began
    return [
        Span(e.name, (e.time_range.start - zero) / 1e3, (e.time_range.end - zero) / 1e3)
        for e in events
        if e.name in PHASES
    ]


def timeline_svg(ranks: Sequence[Sequence[Span]], title: str) -> str:
    """An SVG with one lane for each rank, and a legend with the length of each phase."""
    legend = -(-len(PHASES) // LEGEND_COLUMNS) * LEGEND_LINE
    bottom = LANES_TOP + LANE_HEIGHT * len(ranks)
    scene = Scene(TIMELINE_WIDTH, bottom + 2 * LEGEND_LINE + 8 + legend, [])
    x = replace(axis_of([s.end for spans in ranks for s in spans], floor=True), start=LANES_FROM)
    x = replace(x, end=TIMELINE_WIDTH - 16)
    scene.add(Words((16, LEGEND_LINE), title, "start", "ink", size=10))
    draw_ticks(Plot(scene, x, Axis(0, 1, LANES_TOP, bottom)), x.ticks(9))
    for rank, spans in enumerate(ranks):
        middle = LANES_TOP + LANE_HEIGHT * (rank + 0.5)
        scene.add(Words((LANES_FROM - 5, middle), f"rank {rank}", "end"))
        for span in spans:
            left, right = x.place(span.start), x.place(span.end)
            color = f"series-{PHASES[span.phase][1]}"
            scene.add(_box(left, right, middle, 0.38 * LANE_HEIGHT, color))
    scene.add(Words(((x.start + x.end) / 2, bottom + 1.6 * LEGEND_LINE), "milliseconds"))
    for number, (phase, (label, color)) in enumerate(PHASES.items()):
        lengths = [sum(s.end - s.start for s in spans if s.phase == phase) for spans in ranks]
        each = " and ".join(f"{length:.2f}" for length in lengths)
        left = 16 + number % LEGEND_COLUMNS * (TIMELINE_WIDTH - 16) / LEGEND_COLUMNS
        middle = bottom + 2 * LEGEND_LINE + 6 + LEGEND_LINE * (number // LEGEND_COLUMNS + 0.5)
        scene.add(_box(left, left + 14, middle, 4, f"series-{color}"))
        scene.add(Words((left + 20, middle), f"{label}: {each} ms", "start", "ink"))
    return to_file(scene)


def _box(left: float, right: float, middle: float, half: float, color: str) -> Area:
    top, bottom = middle - half, middle + half
    return Area([(left, top), (right, top), (right, bottom), (left, bottom)], color)
