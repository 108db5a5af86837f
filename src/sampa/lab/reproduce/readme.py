"""What the README says in numbers, written between markers from what is in results/.

Run it with `make readme`; it also draws the picture of the idea, and writes the table of core-hours
in docs/reproduction.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sampa.lab.bench.result import BenchResult
from sampa.lab.files import read_json
from sampa.lab.reproduce.budget import core_hours_block
from sampa.lab.reproduce.idea import alternative, picture
from sampa.lab.reproduce.over_time import REACHED
from sampa.lab.results.charts import chart_in_words
from sampa.lab.results.outcome import AVERAGE, RESULTS, Comparison, Outcome, read_outcome
from sampa.lab.results.table import Table, as_markdown, difference, number_cell, row

PICTURE = Path("docs") / "assets" / "two-gradients.svg"
REPRODUCTION, CORE_HOURS = Path("docs") / "reproduction.md", "core-hours"
DRAWN = "resnet56-batch8"  # the record of the picture
SHOWN_PAIRS = ("SAM − SGD", "SAMPa-0.2 − SGD", "SAMPa-0.2 − SAM")  # the table's differences
ROWS = {  # by experiment: the row that the table has (the last if not said), and what it is
    "full-cifar10": ("", "CIFAR-10, all images at full size"),
    "tab-cifar10": ("", "CIFAR-10, small images"),
    "tab-noise": ("40 %", "CIFAR-10, small images, 40 % wrong labels"),
}
OVER_TIME_ID = "accuracy-over-time"
MEETINGS = (*ROWS, "tab-efficiency")  # where SAMPa-0.2 meets SAM in accuracy


@dataclass(frozen=True)
class Records:
    """What the README is made of: benchmarks by name, experiments by id."""

    benches: dict[str, BenchResult]
    outcomes: dict[str, Outcome]


def read_records(results: Path) -> Records:
    """From the folder that `--record` and `make bench` write to."""
    files = sorted((results / "bench").glob("*.json"))
    benches = {f.stem: BenchResult.from_json(read_json(f)) for f in files}
    outcomes: dict[str, Outcome] = {}
    for name in (*MEETINGS, OVER_TIME_ID):
        file = results / "reproduce" / name / RESULTS
        outcome = read_outcome(file) if file.exists() else None
        if outcome is not None:
            outcomes[name] = outcome
    return Records(benches, outcomes)


def over_time(records: Records) -> list[str]:
    """The first picture: accuracy against time, once it is recorded."""
    outcome = records.outcomes.get(OVER_TIME_ID)
    if outcome is None:
        return []
    (chart,) = outcome.charts
    reached = {entry.column: entry.ours for entry in outcome.entries if entry.row == REACHED}
    times = [f"{name} {found.mean:.1f} ({found.n} runs)" for name, found in reached.items()]
    folder = f"results/reproduce/{OVER_TIME_ID}"
    return [
        f"![{chart.title}. {chart_in_words(chart)}]({folder}/{chart.name}.svg)",
        "",
        f"{chart.title}: {outcome.about}. {chart.note}",
        "",
        f"Minutes until the validation accuracy that SAM ends with, on the same seed: "
        f"{', '.join(times)} ([record]({folder}/README.md)).",
        "",
    ]


def speed(records: Records) -> list[str]:
    """The pictures, and SAMPa against SAM in time and in accuracy."""
    faster = [bench.ratios["sam/sampa"].median for bench in records.benches.values()]
    met = accuracy_differences(records)
    # Not corrected for their number, which would hide the one that speaks against us.
    above = sum(c.ours.is_sure and c.ours.mean > 0 for c in met)
    below = sum(c.ours.is_sure and c.ours.mean < 0 for c in met)
    drawn = records.benches[DRAWN]
    return [
        *over_time(records),
        f"![{alternative(drawn)}]({PICTURE.as_posix()})",
        "",
        f"**SAM's accuracy {drawn.ratios['sam/sampa'].median:.1f} times as fast, with two devices "
        f"instead of one.** Time: {min(faster):.2f} to {max(faster):.2f} times as fast in "
        f"{len(faster)} workloads on two CPU cores ([docs/performance.md](docs/performance.md)).",
        f"Accuracy on the same seeds, in {len(met)} small experiments: SAMPa-0.2 is above SAM in "
        f"{above}, below in {below}, and too close to tell in {len(met) - above - below} "
        "by single 95 % intervals ([results](#results)).",
    ]


def accuracy_differences(records: Records) -> list[Comparison]:
    """SAMPa-0.2 less SAM wherever both were trained; means of several rows do not count again."""
    found: list[Comparison] = []
    for outcome in (records.outcomes[name] for name in MEETINGS if name in records.outcomes):
        accuracies = {entry.row for entry in outcome.entries if entry.kind == "mean"} - {AVERAGE}
        found += [
            c for c in outcome.comparisons() if c.pair == SHOWN_PAIRS[-1] and c.row in accuracies
        ]
    return found


def limits(records: Records) -> list[str]:
    """How close data-parallel SAM comes, which needs no SAMPa."""
    ratios = [
        f"{bench.ratios['ddp_sam/sampa'].median:.2f} ({bench.workload})"
        for bench in records.benches.values()
    ]
    return [f"Data-parallel SAM's time over SAMPa's, on the same two cores: {', '.join(ratios)}."]


def results(records: Records) -> list[str]:
    """Differences between methods, the paper's beside ours."""
    recorded = {name: shown for name, shown in ROWS.items() if name in records.outcomes}
    rows = [
        row(
            f"[{label}](results/reproduce/{name}/README.md)" if c.pair == SHOWN_PAIRS[0] else "",
            *(c.pair, number_cell(c.paper, "+.2f"), difference(c.ours), c.ours.n),
        )
        for name, (shown, label) in recorded.items()
        for c in records.outcomes[name].comparisons()
        if c.row == (shown or records.outcomes[name].rows()[-1]) and c.pair in SHOWN_PAIRS
    ]
    columns = ("", "points of test accuracy", "paper", "ours ± 95 %", "seeds")
    scales = [f"{label}: {records.outcomes[name].about}." for name, (_, label) in recorded.items()]
    return [*as_markdown(Table("", columns, tuple(rows))), "", "Ours: " + " ".join(scales)]


MARKED_BLOCKS: dict[str, Callable[[Records], list[str]]] = {
    "speed": speed,
    "limits": limits,
    "results": results,
}


def updated(readme: str, records: Records) -> str:
    """A README with its blocks renewed.

    Raises:
        ValueError: If it lacks the markers of one.
    """
    for name, lines in MARKED_BLOCKS.items():
        readme = with_block(readme, name, lines(records), "README.md")
    return readme


def with_block(text: str, name: str, lines: list[str], file: str) -> str:
    """A text with one block renewed.

    Raises:
        ValueError: If it lacks the markers.
    """
    begin, end = markers(name)
    first, last = text.find(begin), text.find(end)
    if first < 0 or last < first:
        raise ValueError(f"{file} must have {begin!r} and, after it, {end!r}")
    return text[:first] + "\n".join([begin, "", *lines, "", ""]) + text[last:]


def markers(name: str) -> tuple[str, str]:
    """What stands before and after a block."""
    return f"<!-- {name}: written by make readme -->", f"<!-- end of {name} -->"


def main(root: Path) -> int:
    records = read_records(root / "results")
    file = root / "README.md"
    file.write_text(updated(file.read_text("utf-8"), records), encoding="utf-8")
    page = root / REPRODUCTION
    lines = core_hours_block(root / "results")
    text = with_block(page.read_text("utf-8"), CORE_HOURS, lines, page.name)
    page.write_text(text, encoding="utf-8")
    (root / PICTURE).write_text(picture(records.benches[DRAWN]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path()))
