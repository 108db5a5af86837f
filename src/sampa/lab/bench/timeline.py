"""A time line of one step of SAMPa on two ranks, measured, as an SVG."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.profiler import record_function
from torch.profiler import ProfilerActivity, profile

from sampa.lab.bench.contenders import Bench, Place, with_method
from sampa.lab.bench.problems import Problem

WARM_UP = 4
PHASES = {  # what the library marks for profilers: a name and a color
    "sampa.move": ("move", "#c77d2b"),
    "sampa.gradient": ("forward and backward", "#3b6ea5"),
    "sampa.restore": ("restore", "#8a8a8a"),
    "sampa.exchange": ("exchange (copies and waiting)", "#b5443c"),
    "sampa.update": ("update", "#4f8f5b"),
}


@dataclass(frozen=True)
class Span:
    """A phase of a step, in milliseconds since the step began."""

    phase: str
    start: float
    end: float


def record(rank: int, ranks: int, device: torch.device, problem: Problem, base: str) -> list[Span]:
    """The phases of one step on this rank; a program for every rank."""
    step = with_method(Bench(problem, base, device, rank, ranks), "sampa", Place.BRANCHES)
    for _ in range(WARM_UP):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        dist.barrier()
        with record_function("mark"):
            marked = time.perf_counter()  # one clock for all processes of a machine
        step()
    marks: list[Any] = [None] * ranks
    dist.all_gather_object(marks, marked)
    events = profiled.events() or []
    (zero,) = [e.time_range.start for e in events if e.name == "mark"]
    zero -= (marked - min(marks)) * 1e6  # microseconds, since the first rank began
    return [
        Span(e.name, (e.time_range.start - zero) / 1e3, (e.time_range.end - zero) / 1e3)
        for e in events
        if e.name in PHASES
    ]


def draw(ranks: list[list[Span]], title: str) -> str:
    """One lane for each rank, with a legend; the colors do on a light and on a dark page."""
    width, lane, left, top = 860, 34, 70, 46
    last = max(span.end for spans in ranks for span in spans)
    scale = (width - left - 20) / last
    height = top + len(ranks) * (lane + 12) + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12" fill="#777" role="img">',
        f"<title>{title}</title>",
        f'<text x="{left}" y="18" font-size="13">{title}</text>',
    ]
    for number, spans in enumerate(ranks):
        y = top + number * (lane + 12)
        parts.append(f'<text x="8" y="{y + 21}">rank {number}</text>')
        for span in spans:
            x, w = left + span.start * scale, max((span.end - span.start) * scale, 0.8)
            label, color = PHASES[span.phase]
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{w:.1f}" height="{lane}" fill="{color}">'
                f"<title>{label}: {span.end - span.start:.2f} ms</title></rect>"
            )
    axis = top + len(ranks) * (lane + 12)
    parts += [
        f'<text x="{left}" y="{axis + 12}">0 ms</text>',
        f'<text x="{width - 20}" y="{axis + 12}" text-anchor="end">{last:.1f} ms</text>',
        *_legend(left, axis + 38),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _legend(x: float, y: float) -> list[str]:
    parts = []
    for label, color in PHASES.values():
        parts.append(f'<rect x="{x}" y="{y - 10}" width="11" height="11" fill="{color}"/>')
        parts.append(f'<text x="{x + 16}" y="{y}">{label}</text>')
        x += 40 + 6.4 * len(label)
    return parts
