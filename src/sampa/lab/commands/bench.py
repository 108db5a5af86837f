"""`sampa bench`: what SAMPa gains on this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rich.console import Console

from sampa.lab.bench.contenders import contenders
from sampa.lab.bench.memory import peak_memory
from sampa.lab.bench.own_cost import own_costs
from sampa.lab.bench.problems import Problem
from sampa.lab.bench.ranks import on_ranks
from sampa.lab.bench.results import advice, summary
from sampa.lab.bench.rounds import measure
from sampa.lab.bench.show import described, sheets
from sampa.lab.bench.timeline import draw, record
from sampa.lab.commands.arguments import BenchArguments
from sampa.lab.training.conditions import conditions
from sampa.messages import require, require_choice

MEMORY_OF = ("sgd", "sam", "sampa", "ddp_sam")


def main(arguments: BenchArguments) -> int:
    rounds, base = arguments.rounds, arguments.base
    require("rounds", rounds, rounds >= 1, ">= 1")
    require_choice("base", base, ("sgd", "adamw"))
    problem = Problem(arguments.model, arguments.batch_size)
    about = f"{arguments.model}, batch {arguments.batch_size}"
    names = tuple(c.name for c in contenders(all_methods=arguments.all_methods))
    console = Console()
    console.print(f"{about}, {len(names)} contenders, {rounds} rounds")
    stated = _conditions(problem, base)  # before it is this that keeps the machine busy
    measured = on_ranks(measure, 2, problem, base, names, rounds)[0]
    peaks = {n: peak_memory(problem, base, 2, n) for n in MEMORY_OF} if arguments.memory else {}
    result = summary(measured, peaks, stated)
    if arguments.own_cost:
        result["own_cost"] = on_ranks(own_costs, 1, problem)[0]
    _show(result, console, advise=arguments.advise)
    _write(result, arguments.json, arguments.html)
    if arguments.timeline is not None:
        spans = on_ranks(record, 2, problem, base)
        title = f"One step of SAMPa on two ranks: {about}"
        arguments.timeline.parent.mkdir(parents=True, exist_ok=True)
        arguments.timeline.write_text(draw(spans, title), encoding="utf-8")
    return 0


def _show(result: dict[str, Any], console: Console, *, advise: bool) -> None:
    for sheet in sheets(result):
        console.print(sheet.for_terminal())
    console.print(described(result["conditions"]), highlight=False)
    if advise:
        console.print(advice(result), highlight=False)


def _conditions(problem: Problem, base: str) -> dict[str, Any]:
    found = conditions()
    found |= {"threads": 1, "processes": 2, "load_before": os.getloadavg()[0]}
    return found | {"problem": {**vars(problem), "base": base}}


def _write(result: dict[str, Any], as_json: Path | None, html: Path | None) -> None:
    if as_json is not None:
        as_json.parent.mkdir(parents=True, exist_ok=True)
        as_json.write_text(json.dumps(result, indent=2) + "\n")
    if html is not None:
        from sampa.lab.bench.page import page

        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(page(result), encoding="utf-8")
