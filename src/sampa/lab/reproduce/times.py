"""The experiments about time and memory: what `speed` measured, beside the paper's values.

Seconds of different machines cannot be compared; ratios can. So the paper's seconds are divided by
its first column too.
"""

from __future__ import annotations

from dataclasses import replace

from sampa.catalog import ALIASES, METHODS
from sampa.cost import measure
from sampa.lab.reproduce.grids import ACCURACY_ROW, EFFICIENT, plan_efficiency
from sampa.lab.reproduce.request import Request
from sampa.lab.reproduce.runner import run_grid
from sampa.lab.reproduce.speed import ContestResult, contest
from sampa.lab.results.charts import Chart, Line
from sampa.lab.results.outcome import Entry, Outcome
from sampa.lab.results.paper import Published, Value, published
from sampa.lab.results.pictures import bars, with_deviation

TIME = "time of a step / SAM's"
RATIO_UNIT = "median of the ratios of interleaved steps, ± their standard deviation"
EFFICIENT_TUNINGS, EFFICIENT_SEEDS = ("noise", "efficient"), 5
DEVICES = "SAMPa on two devices, one process and one thread each; the others on one"


def two_devices(blank: Outcome, request: Request) -> Outcome:
    found = contest("two-devices", request)
    theirs = relative(published(blank.id), "Time/Epoch (s)", "SAM")
    about = f"{found.about}; SAM on one device, mSAM with 2 shards and SAMPa on two"
    return _timed(blank, about, found, ratio_entries(TIME, found, theirs, "SAM"))


def batch_time(blank: Outcome, request: Request) -> Outcome:
    found = contest("batch-time", request)
    theirs = relative(published(blank.id), "Time/Batch (ms)", "64")
    entries = ratio_entries("time of a batch / that of 64", found, theirs, "64")
    about = f"{found.model}, SGD, one device; {found.rounds} rounds"
    lines = [
        Line("ours", [float(e.column) for e in entries], [e.ours.mean for e in entries]),
        Line("paper", [float(size) for size in theirs], [v.mean for v in theirs.values()]),
    ]
    note = "A line through the origin would mean that a half batch takes half the time."
    title = "Time of a batch against its size"
    chart = Chart("batch-time", title, "batch size", "time / that of 64", lines, note)
    return replace(_timed(blank, about, found, entries), charts=(chart,))


def memory(blank: Outcome, request: Request) -> Outcome:
    found = contest("efficiency", request)
    theirs = relative(published(blank.id), "Memory (MiB)", "SAM")
    row = "peak memory of a device / SAM's"
    values = {name: n / found.bytes["SAM"] for name, n in found.bytes.items()}
    entries = [Entry(row, name, {0: v}, theirs.get(name), "count") for name, v in values.items()]
    about = f"{found.model}, batches of {found.batch_size}; {DEVICES}"
    unit = "peak bytes of all living tensors in a step, counted, as a multiple of SAM's"
    return replace(_timed(blank, about, found, entries), unit=unit)


def efficiency_figure(blank: Outcome, request: Request) -> Outcome:
    """Sequential gradients, counted, and time, measured."""
    found = contest("efficiency", request)
    counts, ratios = counted(), timed(found)
    charts = (
        bars("sequential-gradients", "Sequential gradients a step", "gradients", counts),
        bars("step-time", "Time of a step", TIME, ratios),
    )
    outcome = _timed(blank, f"{found.about}; {DEVICES}", found, [*counts, *ratios])
    return replace(outcome, charts=charts)


def efficiency_table(blank: Outcome, request: Request) -> Outcome:
    """The accuracy of trained networks, with the counts and times of the figure."""
    outcome = run_grid(blank, request, plan_efficiency, EFFICIENT_TUNINGS, seeds=EFFICIENT_SEEDS)
    found = contest("efficiency", request)
    ratios = timed(found)
    time = {entry.column: entry.ours.mean for entry in ratios}
    lines = [with_deviation(e.column, [time[e.column]], [e]) for e in outcome.entries]
    title = "Test accuracy against time"
    note = "Means over seeds ± one standard deviation; medians of interleaved steps."
    return replace(
        outcome,
        about=f"{outcome.about}. Time: {found.about}; {DEVICES}",
        unit=f"{ACCURACY_ROW}; time: {RATIO_UNIT}",
        entries=(*outcome.entries, *counted(), *ratios),
        charts=(Chart("accuracy-time", title, TIME, ACCURACY_ROW, lines, note, kind="points"),),
    )


def _timed(blank: Outcome, about: str, found: ContestResult, entries: list[Entry]) -> Outcome:
    return replace(
        blank, about=about, unit=RATIO_UNIT, entries=tuple(entries), conditions=found.conditions
    )


def counted() -> list[Entry]:
    """Sequential gradients of a step, by running each method."""
    names = {label: ALIASES.get(method, method) for label, method in EFFICIENT.items()}
    counts = {label: measure(name, METHODS[name]).rounds for label, name in names.items()}
    return [Entry("sequential gradients", name, {0: n}, kind="count") for name, n in counts.items()]


def timed(found: ContestResult) -> list[Entry]:
    """Time ratios to SAM, with the paper's."""
    theirs = relative(published("tab-efficiency"), "Time/Epoch (s)", "SAM")
    return ratio_entries(TIME, found, theirs, "SAM")


def ratio_entries(
    row: str, found: ContestResult, theirs: dict[str, Value], below: str
) -> list[Entry]:
    ratios = found.ratios(below)
    return [Entry(row, name, r, theirs.get(name), "median") for name, r in ratios.items()]


def relative(known: Published, row: str, below: str) -> dict[str, Value]:
    """A row of the paper divided by one of its columns."""
    values = known.values[row]
    return {
        name: Value(round(v.mean / values[below].mean, 3), decimals=3) for name, v in values.items()
    }
