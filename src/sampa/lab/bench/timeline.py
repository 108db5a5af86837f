"""A time line of one step of SAMPa on two ranks, measured, as an SVG."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch.autograd.profiler import record_function
from torch.profiler import ProfilerActivity, profile

from sampa.lab.bench.contenders import contenders
from sampa.lab.bench.workloads import Bench
from sampa.lab.results.svg import PRINT, styled, to_file

STEPS_BEFORE = 4
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
    with styled(PRINT):
        drawn = Figure(figsize=(8.6, 1.2 + 0.45 * len(ranks)))
        axes = drawn.add_subplot()
        handles: list[Patch] = []
        for phase, (label, number) in PHASES.items():
            color, lengths = PRINT.series[number], [0.0] * len(ranks)
            for rank, spans in enumerate(ranks):
                bars = [(s.start, s.end - s.start) for s in spans if s.phase == phase]
                axes.broken_barh(bars, (rank - 0.38, 0.76), facecolors=color)
                lengths[rank] = sum(length for _, length in bars)
            each = " and ".join(f"{length:.2f}" for length in lengths)
            handles.append(Patch(color=color, label=f"{label}: {each} ms"))
        axes.set_title(title, loc="left")
        axes.set_xlabel("milliseconds")
        axes.set_xlim(left=0)
        axes.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in range(len(ranks))])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        drawn.legend(handles=handles, loc="outside lower left", ncols=3, frameon=False)
        return to_file(drawn)
