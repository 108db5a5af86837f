"""`sampa bench`: what SAMPa gains on this machine."""

from __future__ import annotations

import json as json_format
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
from sampa.lab.training.conditions import conditions
from sampa.messages import require, require_choice

MEMORY_OF = ("sgd", "sam", "sampa", "ddp_sam")


def bench(
    model: str = "resnet20",
    batch_size: int = 128,
    rounds: int = 20,
    base: str = "sgd",
    all_methods: bool = True,
    memory: bool = True,
    own_cost: bool = False,
    advise: bool = False,
    json: Path | None = None,
    html: Path | None = None,
    timeline: Path | None = None,
) -> int:
    """Measure steps of SGD, SAM, SAMPa and others on this machine, in turns.

    Every contender makes a step in every round (A, B, C, A, B, C, ...), on one thread per process,
    each process on a core of its own; the figures are medians of ratios within a round, with their
    quartiles. "limit" is one gradient on each of two devices at the same time, with no exchange:
    SAMPa cannot be faster.

    Examples:
        sampa bench
        sampa bench --model resnet56 --batch-size 8 --rounds 100
        sampa bench --model bert-mini --batch-size 16 --advise
        sampa bench --json bench.json --html bench.html

    Args:
        model: A network by name, such as resnet20, resnet56, mlp, bert-mini.
        batch_size: Samples in a batch; data-parallel contenders share one.
        rounds: Steps of each contender; more make the medians steadier.
        base: The base optimizer, sgd (with momentum) or adamw.
        all_methods: Measure LookSAM, AE-SAM, SAF, MESA and ESAM too.
        memory: Measure the peak memory of a process as well; each takes a few seconds.
        own_cost: Measure a step beyond its gradients too, up to 10^8 parameters (3 GB, minutes).
        advise: End with two sentences on what to use here.
        json: Write the results to this file.
        html: Write a page with the results to this file.
        timeline: Write an SVG of one step of SAMPa on two ranks to this file.
    """
    require("rounds", rounds, rounds >= 1, ">= 1")
    require_choice("base", base, ("sgd", "adamw"))
    problem = Problem(model, batch_size)
    names = tuple(c.name for c in contenders(all_methods=all_methods))
    console = Console()
    console.print(f"{model}, batch {batch_size}, {len(names)} contenders, {rounds} rounds")
    stated = _conditions(problem, base)  # before it is this that keeps the machine busy
    measured = on_ranks(measure, 2, problem, base, names, rounds)[0]
    peaks = {n: peak_memory(problem, base, 2, n) for n in MEMORY_OF} if memory else {}
    result = summary(measured, peaks, stated)
    if own_cost:
        result["own_cost"] = on_ranks(own_costs, 1, problem)[0]
    _show(result, console, advise=advise)
    _write(result, json, html)
    if timeline is not None:
        spans = on_ranks(record, 2, problem, base)
        title = f"One step of SAMPa on two ranks: {model}, batch {batch_size}"
        timeline.parent.mkdir(parents=True, exist_ok=True)
        timeline.write_text(draw(spans, title), encoding="utf-8")
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
        as_json.write_text(json_format.dumps(result, indent=2) + "\n")
    if html is not None:
        from sampa.lab.bench.page import page

        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(page(result), encoding="utf-8")
