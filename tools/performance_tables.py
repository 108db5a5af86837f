"""Write the tables of docs/performance.md and docs/scaling.md from the records in results/bench.

    python -m tools.performance_tables

`make bench` makes the records of times and calls this; `python tools/step_times.py` makes those of
an earlier commit, `sampa bench --count` the counts, and `python tools/slow_link.py` the links.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from sampa.lab.bench.counted import Counted, comparison_table
from sampa.lab.bench.result import BenchResult
from sampa.lab.bench.scaling import MeasuredLink, check_table, link_table, scaling_table
from sampa.lab.bench.tables import (
    device_table,
    measured_on,
    megabytes,
    own_cost_table,
    ratio_label,
)
from sampa.lab.conditions import Conditions
from sampa.lab.results.summary import Quartiles
from sampa.lab.results.table import Table, as_markdown, median, number_cell, row
from tools.step_times import Compared

ROOT = Path(__file__).parents[1]
PAGE, SCALING_PAGE = (ROOT / "docs" / name for name in ("performance.md", "scaling.md"))
RECORDS = ROOT / "results" / "bench"
LINKS = RECORDS / "links" / "resnet56-batch8.json"
COUNTS, BEFORE = (RECORDS / "counts" / name for name in ("resnet56.json", "before.json"))
STEPS = RECORDS / "steps"
GIGABITS = (10, 100)
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
SHOWN = ("sam/sampa", "sampa/sgd", "sampa/limit", "ddp_sam/sampa", "pytorch_optimizer_sam/sam")
MEMORY = {"sgd": "SGD", "sam": "SAM", "sampa": "SAMPa", "ddp_sam": "DDP-SAM"}


def as_page_part() -> str:
    """All records, as Markdown."""
    results, counted = bench_records(), Counted.from_json(json.loads(COUNTS.read_text()))
    before = json.loads(BEFORE.read_text())
    tables = [
        ratio_table(results),
        memory_table(results),
        *(own_cost_table(result) for result in results if result.own_cost),
        goal_table({str(result.workload): result for result in results}),
        device_table("resnet56", counted.steps),
        comparison_table(before["found"], counted),
        steps_table(),
    ]
    notes = "\n".join(f"- {result.rounds} rounds: {measured_on(result)}." for result in results)
    notes += f"\n- Counts now: commit {counted.conditions.values['commit']}."
    notes += f"\n- Before: commit {before['commit']}; {before['conditions']}."
    return "\n\n".join([*map(as_part, tables), f"Conditions:\n\n{notes}"])


def bench_records() -> list[BenchResult]:
    files = sorted(RECORDS.glob("*.json"))
    return [BenchResult.from_json(json.loads(file.read_text())) for file in files]


def as_part(table: Table) -> str:
    return "\n".join([f"{table.title}:", "", *as_markdown(table)])


def as_scaling_part() -> str:
    """The model beside what was measured, and what it predicts, as Markdown."""
    results, stated = bench_records(), json.loads(LINKS.read_text())
    links = [MeasuredLink(**link) for link in stated["links"]]
    found, problem = Conditions(stated["conditions"]), stated["conditions"]["problem"]
    about = (
        f"{problem['model']}, batch {problem['batch_size']}, {problem['steps']} steps, two network "
        f"namespaces on one machine; commit {found.values['commit']}."
    )
    predicted = [scaling_table(result, gigabits) for gigabits in GIGABITS for result in results]
    parts = [as_part(check_table(results)), f"{as_part(link_table(links))}\n\n{about}"]
    return "\n\n".join([*parts, *map(as_part, predicted)])


def ratio_table(results: Sequence[BenchResult]) -> Table:
    rows = tuple(
        row(
            str(result.workload),
            *(median(result.ratios.get(name)) for name in SHOWN),
            number_cell(result.exposed_milliseconds, ".1f"),
            number_cell(result.milliseconds["limit"], ".1f"),
        )
        for result in results
    )
    names = [ratio_label(name).replace("_", " ") for name in SHOWN]
    columns = ("", *names, "SAMPa − limit (ms)", "limit (ms)")
    return Table("Median of paired ratios (quartiles)", columns, rows)


def memory_table(results: Sequence[BenchResult]) -> Table:
    rows = tuple(
        row(
            str(result.workload),
            *(megabytes(result, name) for name in MEMORY),
            number_cell(memory_ratio(result), ".3f"),
            result.bytes_per_rank,
        )
        for result in results
    )
    columns = ("", *MEMORY.values(), "SAMPa / SAM", "bytes sent per rank and step")
    return Table("Peak memory of a process in MB (resident), and bytes sent", columns, rows)


def steps_table() -> Table:
    """Step times of now and of an earlier commit, from the records of tools/step_times.py."""
    records = [json.loads(file.read_text()) for file in sorted(STEPS.glob("*.json"))]
    rows = tuple(
        row(
            *(one.method, one.processes, record["batch"]),
            *(number_cell(ms, ".0f") for ms in (one.now, one.before)),
            *(record["against"], median(Quartiles(one.ratio, one.low, one.high), 3)),
            f"{min(one.starts):.3f} to {max(one.starts):.3f}",
        )
        for record in records
        for one in (Compared(**values) for values in record["compared"])
    )
    columns = ("", "processes", "batch", "ms", "before", "at", "ratio (quartiles)", "by start")
    places = "; ".join(
        f"batch {record['batch']} at commit {record['conditions']['commit']}, "
        f"{record['starts']} starts of {record['turns']} turns"
        for record in records
    )
    return Table(f"Steps of ResNet-20 and those of an earlier commit ({places})", columns, rows)


def goal_table(results: dict[str, BenchResult]) -> Table:
    large, small, deep = (
        results[name] for name in ("resnet20, batch 128", "resnet20, batch 8", "resnet56, batch 8")
    )
    goals = [
        ("SAM / SAMPa, batch 128", *_both(large, "sam/sampa"), ">=", 1.90),
        ("SAMPa / limit, batch 128", *_both(large, "sampa/limit"), "<=", 1.02),
        ("SAM / SAMPa, batch 8", *_both(small, "sam/sampa"), ">=", 1.65),
        ("SAMPa / limit, batch 8", *_both(small, "sampa/limit"), "<=", 1.05),
        ("DDP-SAM / SAMPa, batch 8", *_both(small, "ddp_sam/sampa"), ">=", 1.35),
        ("SAM's own cost / pytorch_optimizer's, resnet56", own_cost_ratio(deep), None, "<=", 0.5),
        ("SAMPa's memory / SAM's, batch 128", memory_ratio(large), None, "<=", 1.0),
    ]
    rows = tuple(
        row(name, f"{sign} {wanted:.2f}", found, _holds(found, sign, wanted), fast)
        for name, found, fast, sign, wanted in goals
    )
    title = (
        "Goals. The last column divides the lower quartiles of step times, which is nearer to a "
        "machine\nwithout neighbors"
    )
    return Table(title, ("", "wanted", "measured", "reached", "of lower quartiles"), rows)


def _holds(found: float, sign: str, wanted: float) -> str:
    return "yes" if (found >= wanted if sign == ">=" else found <= wanted) else "no"


def _both(result: BenchResult, ratio: str) -> tuple[float, float]:
    """The median of paired ratios, and the ratio of lower quartiles."""
    above, below = ratio.split("/")
    fast = result.fast_milliseconds
    return result.ratios[ratio].median, fast[above] / fast[below]


def own_cost_ratio(result: BenchResult) -> float:
    # A method's first row is for the network's own parameters.
    times = {cost.method: cost.milliseconds for cost in reversed(result.own_cost)}
    return times["sam"] / times["pytorch_optimizer_sam"]


def memory_ratio(result: BenchResult) -> float:
    return result.peak_memory["sampa"] / result.peak_memory["sam"]


def updated(page: str, tables: str) -> str:
    """The page with the tables of now between its marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(), as_page_part()))
    SCALING_PAGE.write_text(updated(SCALING_PAGE.read_text(), as_scaling_part()))
