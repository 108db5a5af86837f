"""Pictures of outcomes that are grids: a line over the rows or columns, or points."""

from __future__ import annotations

from sampa.reproduce.outcome import Chart, Entry, Line, Outcome
from sampa.train.tables import Spread

BAND = "Mean over seeds; the band is ± one standard deviation."


def over_noise(outcome: Outcome) -> tuple[Chart, ...]:
    """Test accuracy over the share of wrong labels, a line for each method."""
    lines: list[Line] = []
    for column in dict.fromkeys(entry.column for entry in outcome.entries):
        own = [entry for entry in outcome.entries if entry.column == column]
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
        Line(entry.column, [time[entry.column]], [entry.ours.mean])
        for entry in outcome.entries
        if entry.row == row and entry.column in time
    ]
    title, note = "Test accuracy against time", "Means over seeds; medians of interleaved steps."
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
