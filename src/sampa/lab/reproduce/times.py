"""The experiments about time and memory: what `speed` measured, beside the paper's values.

Seconds of different machines cannot be compared; ratios can. So the paper's seconds are divided by
its first column too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sampa.catalog import ALIASES, METHODS
from sampa.cost import measure
from sampa.lab.reproduce import speed
from sampa.lab.reproduce.grids import EFFICIENT
from sampa.lab.reproduce.outcome import Chart, Entry, Line, Outcome
from sampa.lab.reproduce.paper import Published, Value, published
from sampa.lab.reproduce.pictures import against_time, bars
from sampa.lab.reproduce.request import Request

TIME = "time of a step / SAM's"
RATIO_UNIT = "median of the ratios of interleaved steps, ± their standard deviation"
DEVICES = "SAMPa on two devices, one process and one thread each; the others on one"


def two_devices(request: Request) -> Outcome:
    found = speed.contest("two-devices", request)
    known = published("tab-two-devices")
    entries = ratio_entries(TIME, found, relative(known, "Time/Epoch (s)", "SAM"), "SAM")
    about = f"{found['about']}; SAM on one device, mSAM with 2 shards and SAMPa on two"
    return _outcome("tab-two-devices", TITLES["tab-two-devices"], request, about, entries, found)


def batch_time(request: Request) -> Outcome:
    found = speed.contest("batch-time", request)
    known = published("tab-batch-time")
    entries = ratio_entries(
        "time of a batch / that of 64", found, relative(known, "Time/Batch (ms)", "64"), "64"
    )
    about = f"{found['about'].split(',')[0]}, SGD, one device; {found['about'].split('; ')[-1]}"
    outcome = _outcome("tab-batch-time", TITLES["tab-batch-time"], request, about, entries, found)
    sizes = [float(entry.column) for entry in entries]
    lines = [
        Line("ours", sizes, [entry.ours.mean for entry in entries]),
        Line("paper", sizes, [entry.paper.mean for entry in entries if entry.paper]),
    ]
    note = "A line through the origin would mean that a half batch takes half the time."
    title = "Time of a batch against its size"
    chart = Chart("batch-time", title, "batch size", "time / that of 64", lines, note)
    return replace(outcome, charts=(chart,))


def memory(request: Request) -> Outcome:
    found = speed.contest("efficiency", request)
    known = published("tab-memory")
    theirs = relative(known, "Memory (MiB)", "SAM")
    row = "peak memory of a device / SAM's"
    values = {name: n / found["bytes"]["SAM"] for name, n in found["bytes"].items()}
    entries = [Entry(row, name, {0: v}, theirs.get(name), "count") for name, v in values.items()]
    about = f"{found['about'].split(';')[0]}; {DEVICES}"
    outcome = _outcome("tab-memory", TITLES["tab-memory"], request, about, entries, found)
    unit = "peak bytes of all living tensors in a step, counted, as a multiple of SAM's"
    return replace(outcome, unit=unit)


def efficiency_figure(request: Request) -> Outcome:
    """Sequential gradients, counted, and time, measured."""
    found = speed.contest("efficiency", request)
    entries = [*counted(), *timed(found)]
    about = f"{found['about']}; {DEVICES}"
    outcome = _outcome("fig-efficiency", TITLES["fig-efficiency"], request, about, entries, found)
    charts = (
        bars("sequential-gradients", "Sequential gradients a step", "gradients", counted()),
        bars("step-time", "Time of a step", TIME, timed(found)),
    )
    return replace(outcome, charts=charts)


def efficiency_table(accuracy: Callable[[Request], Outcome], request: Request) -> Outcome:
    """The accuracy of trained networks, with the counts and times of the figure."""
    outcome, found = accuracy(request), speed.contest("efficiency", request)
    outcome = replace(
        outcome,
        about=f"{outcome.about}. Time: {found['about']}; {DEVICES}",
        unit=f"test accuracy in %; time: {RATIO_UNIT}",
        entries=(*outcome.entries, *counted(), *timed(found)),
    )
    return replace(outcome, charts=(against_time(outcome, "Accuracy", TIME),))


def counted() -> list[Entry]:
    """Sequential gradients of a step, by running each method."""
    names = {label: ALIASES.get(method, method) for label, method in EFFICIENT.items()}
    counts = {label: measure(name, METHODS[name]).rounds for label, name in names.items()}
    return [Entry("sequential gradients", name, {0: n}, kind="count") for name, n in counts.items()]


def timed(found: dict[str, Any]) -> list[Entry]:
    """Time ratios to SAM, with the paper's."""
    theirs = relative(published("tab-efficiency"), "Time/Epoch (s)", "SAM")
    return ratio_entries(TIME, found, theirs, "SAM")


def ratio_entries(
    row: str, found: dict[str, Any], theirs: dict[str, Value], below: str
) -> list[Entry]:
    measured = speed.ratios(found["seconds"], below)
    return [
        Entry(row, name, values, theirs.get(name), kind="median")
        for name, values in measured.items()
    ]


def relative(known: Published, row: str, below: str) -> dict[str, Value]:
    """A row of the paper divided by one of its columns."""
    values = known.values[row]
    return {
        name: Value(round(v.mean / values[below].mean, 3), decimals=3) for name, v in values.items()
    }


TITLES = {
    "tab-two-devices": "mSAM (m = 2) and SAMPa-0.2 on two devices, SAM on one: time",
    "tab-batch-time": "time of a batch against its size",
    "tab-memory": "memory of SAM, SAMPa-0.2, LookSAM, AE-SAM, SAF, MESA and ESAM",
    "fig-efficiency": "sequential gradients and time of the efficient variants",
}


def _outcome(
    name: str, title: str, request: Request, about: str, entries: list[Entry], found: dict[str, Any]
) -> Outcome:
    known = published(name)
    return Outcome(
        id=name,
        title=title,
        scale=request.scale,
        about=about,
        label=known.label,
        claim=known.claim,
        unit=RATIO_UNIT,
        entries=tuple(entries),
        conditions=found["conditions"],
    )
