"""The result of a benchmark as tables, and the conditions it was measured under in a line."""

from __future__ import annotations

from collections.abc import Sequence

from sampa.lab.bench.contenders import contenders
from sampa.lab.bench.counted import Counted
from sampa.lab.bench.counting import StepCount
from sampa.lab.bench.own_cost import LEAST_BYTES
from sampa.lab.bench.result import BenchResult
from sampa.lab.results.table import Cell, Table, median, number_cell, row


def result_tables(result: BenchResult) -> list[Table]:
    """All that was measured."""
    tables = [ratio_table(result), time_table(result), count_table(result)]
    return [*tables, own_cost_table(result)] if result.own_cost else tables


def ratio_table(result: BenchResult) -> Table:
    """Ratios of step times, with quartiles."""
    rows = tuple(row(ratio_label(name), median(r, 3)) for name, r in result.ratios.items())
    title = f"Ratios of step times, paired within {result.rounds} rounds"
    return Table(title, ("ratio", "median (quartiles)"), rows)


def ratio_label(name: str) -> str:
    """Such as "sam / sampa"."""
    return name.replace("/", " / ")


def time_table(result: BenchResult) -> Table:
    """Medians, lower quartiles and peak memory of each contender."""
    places = {name: contender.placement.value for name, contender in contenders().items()}
    rows = tuple(
        row(name, places[name], ms, result.fast_milliseconds[name], megabytes(result, name))
        for name, ms in result.milliseconds.items()
    )
    exposed, limit = result.exposed_milliseconds, result.milliseconds["limit"]
    notes = (
        "fast: the lower quartile.",
        f"SAMPa beyond the limit: {exposed:.2f} ms, {100 * exposed / limit:.1f} % of it.",
    )
    columns = ("method", "where", "median ms", "fast ms", "peak MB")
    return Table("Times and memory", columns, rows, notes).without_empty_columns()


def megabytes(result: BenchResult, name: str) -> Cell:
    """The peak memory of a contender, where measured."""
    found = result.peak_memory.get(name)
    return number_cell(None if found is None else found / 1e6, ".0f")


def count_table(result: BenchResult) -> Table:
    """Rounds, gradients and bytes of a step."""
    rows = tuple(row(name, c.rounds, c.probes, c.bytes_sent) for name, c in result.counts.items())
    columns = ("method", "rounds", "gradients", "bytes sent per rank")
    return Table("What a step does, exactly", columns, rows)


def own_cost_table(result: BenchResult) -> Table:
    """Steps beyond their gradients."""
    rows = tuple(
        row(
            *(c.method, c.parameters, c.kernels, round(c.bytes_per_parameter)),
            *(LEAST_BYTES.get(c.method), c.milliseconds),
        )
        for c in result.own_cost
    )
    columns = ("method", "parameters", "kernels", "bytes per parameter", "least", "ms")
    title = "A step beyond its gradients, in one process with fused SGD and momentum"
    return Table(title, columns, rows, ("least: if nothing is copied to be safe",))


def device_table(model: str, counts: Sequence[StepCount]) -> Table:
    """What a step would cost a GPU."""
    rows = tuple(
        row(
            c.method,
            c.base,
            c.checks,
            c.waits,
            c.launches,
            c.strided,
            number_cell(c.buffers, ".1f"),
        )
        for c in counts
    )
    columns = ("method", "base", "checks", "waits", "kernels", "as_strided", "buffers")
    notes = (
        "Counted on fake CUDA tensors, without the gradients themselves.",
        "buffers: alive at the peak, in sizes of the parameters.",
    )
    return Table(f"What a step of {model} would cost a GPU, in one process", columns, rows, notes)


def host_time_table(found: Counted) -> Table:
    """A step's own calls beside a loop that was written by hand, and what a batch costs."""
    host, marks = found.host, found.mark.values()
    cells = row(host.tensors, host.sampa, host.by_hand, host.ratio, *marks)
    columns = ("tensors", "SAMPa", "by hand", "SAMPa / by hand")
    marked = tuple(f"mark of {images} images" for images in found.mark)
    return Table("Own host time of a step of SAMPa, in ms", (*columns, *marked), (cells,))


def measured_on(result: BenchResult) -> str:
    """Workload, machine, versions and commit, in a line or two."""
    stated = result.conditions.values
    machine = stated["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in stated["versions"].items())
    return (
        f"{result.workload}, {result.workload.base}; "
        f"{machine['processor']}, {machine['cores']} cores, {machine['device']}, one thread per "
        f"process; {versions}; commit {stated['commit']}"
    )
