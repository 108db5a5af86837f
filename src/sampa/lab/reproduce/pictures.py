"""Pictures of outcomes: those that come with them, and those that any table can be drawn as."""

from __future__ import annotations

from sampa.lab.reproduce.outcome import Chart, Comparison, Entry, Line, Outcome
from sampa.lab.training.tables import SURE, Spread

BAND = "Mean over seeds; the band is ± one standard deviation."
PAPER = "Diamonds: the paper."


def shown(outcome: Outcome) -> tuple[Chart, ...]:
    """All pictures of an outcome: its own, and the differences that the paper prints too.

    What has neither is drawn as bars.
    """
    charts = (*outcome.charts, *_differences(outcome))
    return charts or tuple(_as_bars(outcome, row) for row in outcome.rows())


def _differences(outcome: Outcome) -> list[Chart]:
    """Paired differences between methods beside the paper's; times have pictures of their own."""
    rows = {entry.row for entry in outcome.entries if entry.kind == "mean"}
    found = [c for c in outcome.comparisons() if c.row in rows and c.ours.n > 1]
    if all(c.paper is None for c in found):
        return []
    note = f"Bars: ± {SURE:g} standard errors; gray where they reach 0. {PAPER}"
    pairs = {_pair(c) for c in found}
    axis = f"{pairs.pop() if len(pairs) == 1 else 'difference'}, in the unit of the table"
    lines = [_difference(c, label) for c, label in zip(found, _labels(found), strict=True)]
    title = "Differences on the same seeds"
    return [Chart("differences", title, axis, "", lines, note, kind="intervals")]


def _pair(c: Comparison) -> str:
    return f"{c.column} − {c.baseline}"


def _labels(found: list[Comparison]) -> list[str]:
    """Row and pair, without what is the same everywhere."""
    if len({_pair(c) for c in found}) == 1:
        return [c.row for c in found]
    if len({c.row for c in found}) == 1:
        return [_pair(c) for c in found]
    return [f"{c.row}: {_pair(c)}" for c in found]


def _difference(c: Comparison, label: str) -> Line:
    error = SURE * c.ours.standard_error
    values = [c.ours.mean] if c.paper is None else [c.ours.mean, c.paper]
    return Line(label, [0.0], values, [c.ours.mean - error], [c.ours.mean + error])


def _as_bars(outcome: Outcome, row: str) -> Chart:
    own = [entry for entry in outcome.entries if entry.row == row]
    place = outcome.rows().index(row)
    name = "values" if place == 0 else f"values-{place + 1}"
    return bars(name, f"{row[:1].upper()}{row[1:]}", row, own)


def bars(name: str, title: str, axis: str, entries: list[Entry]) -> Chart:
    """A bar for each method, with the paper's value where it prints one."""
    lines = [_bar(entry) for entry in entries]
    note = PAPER if any(line.y[1:] for line in lines) else ""
    return Chart(name, title, axis, "", lines, note, kind="bars")


def _bar(entry: Entry) -> Line:
    values = [entry.ours.mean] if entry.paper is None else [entry.ours.mean, entry.paper.mean]
    return Line(entry.column, [0.0], values)


def over_noise(outcome: Outcome) -> tuple[Chart, ...]:
    """Test accuracy over the share of wrong labels, a line for each method."""
    lines: list[Line] = []
    levels = [entry for entry in outcome.entries if entry.row.endswith("%")]
    for column in dict.fromkeys(entry.column for entry in levels):
        own = [entry for entry in levels if entry.column == column]
        lines.append(_line(column, [_number(entry.row) for entry in own], own))
    title, x_label = "Test accuracy under label noise", "wrong training labels in %"
    return (Chart("label-noise", title, x_label, "test accuracy in %", lines, BAND),)


def over_lambda(outcome: Outcome) -> tuple[Chart, ...]:
    """Test accuracy over λ, a line for each network."""
    lines: list[Line] = []
    for row in outcome.rows():
        own = [entry for entry in outcome.entries if entry.row == row]
        lines.append(_line(row, [_number(entry.column) for entry in own], own))
    return (Chart("lambda", "Test accuracy over λ", "λ", "test accuracy in %", lines, BAND),)


def against_time(outcome: Outcome, row: str, time_row: str) -> Chart:
    """One measure against time, a point for each method that has both."""
    time = {entry.column: entry.ours.mean for entry in outcome.entries if entry.row == time_row}
    lines = [
        _line(entry.column, [time[entry.column]], [entry])
        for entry in outcome.entries
        if entry.row == row and entry.column in time
    ]
    title = "Test accuracy against time"
    note = "Means over seeds ± one standard deviation; medians of interleaved steps."
    axes = ("time of a step / SAM's", "test accuracy in %")
    return Chart("accuracy-time", title, *axes, lines, note, kind="points")


def _line(label: str, x: list[float], entries: list[Entry]) -> Line:
    found = [entry.ours for entry in entries]
    low = [s.mean - _std(s) for s in found]
    high = [s.mean + _std(s) for s in found]
    return Line(label, x, [s.mean for s in found], low, high)


def _std(s: Spread) -> float:
    return s.std if s.n > 1 else 0.0


def _number(text: str) -> float:
    """The number in "40 %" or "λ = 0.2"."""
    return float(text.removesuffix("%").removeprefix("λ =").strip())
