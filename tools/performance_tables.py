"""Write the tables of docs/performance.md from the records in results/bench.

    python tools/performance_tables.py

`make bench` makes the records and calls this.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sampa.lab.bench.show import described, own_cost_sheet

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
RECORDS = ROOT / "results" / "bench"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
SHOWN = ("sam/sampa", "sampa/sgd", "sampa/limit", "ddp_sam/sampa", "pytorch_optimizer_sam/sam")


def tables() -> str:
    """All records, as Markdown."""
    records = [json.loads(path.read_text()) for path in sorted(RECORDS.glob("*.json"))]
    blocks = [
        ratio_rows(records),
        memory_rows(records),
        *map(own_cost_rows, records),
        goal_rows({_name(r): r for r in records}),
    ]
    notes = "\n".join(f"- {r['rounds']} rounds: {described(r['conditions'])}." for r in records)
    return "\n\n".join([*filter(None, blocks), f"Conditions:\n\n{notes}"])


def ratio_rows(records: list[dict[str, Any]]) -> str:
    rows = [
        [_name(r), *(_ratio(r["ratios"].get(name)) for name in SHOWN), _milliseconds(r)]
        for r in records
    ]
    heads = [*(n.replace("/", " / ").replace("_", " ") for n in SHOWN), "SAMPa − limit"]
    return "Median of paired ratios (quartiles):\n\n" + markdown(["", *heads], rows)


def memory_rows(records: list[dict[str, Any]]) -> str:
    rows = [
        [
            _name(r),
            *(f"{r['peak_memory'][name] / 1e6:.0f}" for name in ("sgd", "sam", "sampa", "ddp_sam")),
            f"{_memory_ratio(r):.3f}",
            f"{r['bytes_per_rank']:,}",
        ]
        for r in records
    ]
    heads = ["", "SGD", "SAM", "SAMPa", "DDP-SAM", "SAMPa / SAM", "bytes sent per rank and step"]
    return "Peak memory of a process in MB (resident), and bytes sent:\n\n" + markdown(heads, rows)


def own_cost_rows(record: dict[str, Any]) -> str:
    if not record.get("own_cost"):
        return ""
    sheet = own_cost_sheet(record)
    return f"{sheet.title}:\n\n" + markdown(list(sheet.columns), [list(row) for row in sheet.rows])


def goal_rows(records: dict[str, dict[str, Any]]) -> str:
    large, small, deep = (
        records[name] for name in ("resnet20, batch 128", "resnet20, batch 8", "resnet56, batch 8")
    )
    goals = [
        ("SAM / SAMPa, batch 128", *_both(large, "sam/sampa"), ">=", 1.90),
        ("SAMPa / limit, batch 128", *_both(large, "sampa/limit"), "<=", 1.02),
        ("SAM / SAMPa, batch 8", *_both(small, "sam/sampa"), ">=", 1.65),
        ("SAMPa / limit, batch 8", *_both(small, "sampa/limit"), "<=", 1.05),
        ("DDP-SAM / SAMPa, batch 8", *_both(small, "ddp_sam/sampa"), ">=", 1.35),
        ("SAM's own cost / pytorch_optimizer's, resnet56", _own_cost_ratio(deep), None, "<=", 0.5),
        ("SAMPa's memory / SAM's, batch 128", _memory_ratio(large), None, "<=", 1.0),
    ]
    rows = [
        [
            name,
            f"{sign} {wanted:.2f}",
            f"{found:.2f}",
            "yes" if _holds(found, sign, wanted) else "no",
            "" if fast is None else f"{fast:.2f}",
        ]
        for name, found, fast, sign, wanted in goals
    ]
    heads = ["", "wanted", "measured", "reached", "of lower quartiles"]
    return (
        "Goals. The last column divides the lower quartiles of step times, which is nearer to a "
        "machine\nwithout neighbours:\n\n" + markdown(heads, rows)
    )


def _holds(found: float, sign: str, wanted: float) -> bool:
    return found >= wanted if sign == ">=" else found <= wanted


def _both(record: dict[str, Any], ratio: str) -> tuple[float, float]:
    """The median of paired ratios, and the ratio of lower quartiles."""
    above, below = ratio.split("/")
    fast = record["fast_milliseconds"]
    return record["ratios"][ratio]["median"], fast[above] / fast[below]


def _own_cost_ratio(record: dict[str, Any]) -> float:
    # A method's first row is for the network's own parameters.
    times = {c["method"]: c["milliseconds"] for c in reversed(record["own_cost"])}
    return times["sam"] / times["pytorch_optimizer_sam"]


def _memory_ratio(record: dict[str, Any]) -> float:
    return record["peak_memory"]["sampa"] / record["peak_memory"]["sam"]


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] + ["--:"] * (len(heads) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def updated(page: str) -> str:
    """The page with the tables of now between its marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{rest.split(END)[1]}"


def _name(record: dict[str, Any]) -> str:
    problem = record["conditions"]["problem"]
    return f"{problem['model']}, batch {problem['batch_size']}"


def _ratio(values: dict[str, float] | None) -> str:
    if values is None:
        return ""
    return f"{values['median']:.2f} ({values['low']:.2f} to {values['high']:.2f})"


def _milliseconds(record: dict[str, Any]) -> str:
    exposed, limit = record["exposed_milliseconds"], record["milliseconds"]["limit"]
    return f"{exposed:.1f} of {limit:.1f} ms"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
