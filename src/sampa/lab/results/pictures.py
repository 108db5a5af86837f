"""Pictures of outcomes: those that come with them, and those that any table can be drawn as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sampa.lab.results.charts import Chart, Line
from sampa.lab.results.outcome import Comparison, Entry, Outcome

BAND = "Mean over seeds; the band is ± one standard deviation."
PAPER = "Diamonds: the paper."


def all_charts(outcome: Outcome) -> tuple[Chart, ...]:
    """All pictures of an outcome: its own, and the differences that the paper prints too.

    What has neither is drawn as bars.
    """
    charts = (*outcome.charts, *_differences(outcome))
    return charts or tuple(_as_bars(outcome, i, row) for i, row in enumerate(outcome.rows()))


def _differences(outcome: Outcome) -> list[Chart]:
    """Paired differences between methods beside the paper's; times have pictures of their own."""
    rows = {entry.row for entry in outcome.entries if entry.kind == "mean"}
    found = [c for c in outcome.comparisons() if c.row in rows and c.ours.n > 1]
    if all(c.paper is None for c in found):
        return []
    note = f"Bars: 95 % intervals (Student's t); gray where they reach 0. {PAPER}"
    pairs = {c.pair for c in found}
    axis = f"{pairs.pop() if len(pairs) == 1 else 'difference'}, in the unit of the table"
    title = "Differences on the same seeds"
    return [Chart("differences", title, axis, "", _intervals(found), note, kind="intervals")]


def _intervals(found: Sequence[Comparison]) -> list[Line]:
    """Named by row and pair, without what is the same everywhere."""
    one_pair, one_row = (len({c.pair for c in found}) == 1, len({c.row for c in found}) == 1)
    lines: list[Line] = []
    for c in found:
        ours = c.ours.mean
        values = [ours] if c.paper is None else [ours, c.paper]
        ends = [ours - c.ours.margin], [ours + c.ours.margin]
        group = "" if one_pair or one_row else c.row
        lines.append(Line(c.row if one_pair else c.pair, [0.0], values, *ends, group))
    return lines


def _as_bars(outcome: Outcome, number: int, row: str) -> Chart:
    own = [entry for entry in outcome.entries if entry.row == row]
    name = f"values-{number + 1}" if number else "values"
    return bars(name, f"{row[:1].upper()}{row[1:]}", row, own)


def bars(name: str, title: str, axis: str, entries: Sequence[Entry]) -> Chart:
    """A bar for each method, with the paper's value where it prints one."""
    values = [[e.ours.mean] if e.paper is None else [e.ours.mean, e.paper.mean] for e in entries]
    lines = [Line(e.column, [0.0], y) for e, y in zip(entries, values, strict=True)]
    note = PAPER if any(line.y[1:] for line in lines) else ""
    return Chart(name, title, axis, "", lines, note, kind="bars")


def lines_over(outcome: Outcome, numbers: Mapping[str, float]) -> list[Line]:
    """A line for each column over the rows that are numbers, or for each row over such columns."""
    found: dict[str, dict[float, Entry]] = {}
    for entry in outcome.entries:
        if entry.row in numbers:
            found.setdefault(entry.column, {})[numbers[entry.row]] = entry
        elif entry.column in numbers:
            found.setdefault(entry.row, {})[numbers[entry.column]] = entry
    return [with_deviation(label, list(own), list(own.values())) for label, own in found.items()]


def with_deviation(label: str, x: list[float], entries: Sequence[Entry]) -> Line:
    """Means, each ± its standard deviation (none where there is one value only)."""
    found = [entry.ours for entry in entries]
    low = [s.mean - (s.std if s.n > 1 else 0.0) for s in found]
    high = [s.mean + (s.std if s.n > 1 else 0.0) for s in found]
    return Line(label, x, [s.mean for s in found], low, high)
