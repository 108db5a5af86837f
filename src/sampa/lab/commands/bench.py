"""`sampa bench`: what SAMPa gains on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console

from sampa.lab.bench.contenders import contenders
from sampa.lab.bench.counted import count_all
from sampa.lab.bench.own_cost import own_costs
from sampa.lab.bench.ranks import RANKS, on_ranks
from sampa.lab.bench.result import BenchResult, advice, result_of
from sampa.lab.bench.rounds import measure_steps, peak_memory
from sampa.lab.bench.scaling import SHOWN, scaling_table
from sampa.lab.bench.tables import device_table, host_time_table, measured_on, result_tables
from sampa.lab.bench.workloads import Workload
from sampa.lab.commands.arguments import BenchArguments
from sampa.lab.conditions import Conditions
from sampa.lab.devices import device_name, find_device
from sampa.lab.models import build
from sampa.lab.named import is_own
from sampa.lab.progress import Bar
from sampa.lab.results.fitted import Fitted
from sampa.messages import wrong_usage

MEMORY_OF = ("sgd", "sam", "sampa", "ddp_sam")


def main(arguments: BenchArguments) -> int:
    with wrong_usage():
        model, size, shape = arguments.model, arguments.batch_size, arguments.shape
        workload = Workload(model, size, arguments.base, shape)
    if arguments.count:
        return _count(arguments, workload)
    with wrong_usage():
        workload.require_fitting()
    devices = [find_device(arguments.device, rank) for rank in range(RANKS)]
    names = tuple(contenders(all_methods=arguments.all_methods))
    console = Console()
    rounds = arguments.rounds
    shown = f"{rounds} rounds" if rounds else "about two minutes"
    console.print(f"{workload}, {len(names)} contenders, {shown}", highlight=False)
    stated = _conditions(workload, devices[0])  # before it is this that keeps the machine busy
    seconds, counts = on_ranks(measure_steps, devices, workload, names, rounds)[0]
    peaks = _peaks(workload, devices) if arguments.memory else {}
    costs = on_ranks(own_costs, devices[:1], workload)[0] if arguments.own_cost else ()
    result = result_of(seconds, counts, peaks, stated, costs)
    _show(result, console, advise=arguments.advise)
    if arguments.gpus is not None:
        sizes = sorted({*SHOWN, arguments.gpus})
        console.print(Fitted(scaling_table(result, arguments.link, sizes)))
    if arguments.json is not None:
        _write(arguments.json, json.dumps(result.as_json(), indent=2) + "\n")
    if arguments.html is not None:
        from sampa.lab.bench.page import bench_page

        _write(arguments.html, bench_page(result))
    if arguments.timeline is not None:
        from sampa.lab.bench.timeline import record_step, timeline_svg

        title = f"One step of SAMPa on two ranks: {workload}"
        _write(arguments.timeline, timeline_svg(on_ranks(record_step, devices, workload), title))
    return 0


def _peaks(workload: Workload, devices: Sequence[torch.device]) -> dict[str, int]:
    found: dict[str, int] = {}
    with Bar("peak memory", len(MEMORY_OF)) as bar:
        for name in MEMORY_OF:
            found[name] = peak_memory(workload, devices, name)
            bar.advance()
    return found


def _count(arguments: BenchArguments, workload: Workload) -> int:
    network = workload.network() if is_own(workload.model) else build(workload.model)
    found = count_all(arguments.model, [tuple(p.shape) for p in network.parameters()])
    console = Console()
    console.print(Fitted(device_table(arguments.model, found.steps)))
    console.print(Fitted(host_time_table(found)))
    if arguments.json is not None:
        _write(arguments.json, json.dumps(found.as_json(), indent=2) + "\n")
    return 0


def _show(result: BenchResult, console: Console, *, advise: bool) -> None:
    for table in result_tables(result):
        console.print(Fitted(table))
    console.print(measured_on(result), highlight=False)
    if advise:
        console.print(advice(result), highlight=False)


def _conditions(workload: Workload, device: torch.device) -> Conditions:
    return Conditions.now().changed(
        {
            "machine": {"device": device_name(device)},
            "threads": 1,
            "processes": RANKS,
            "load_before": os.getloadavg()[0],
            "problem": {k: v for k, v in asdict(workload).items() if v != ""},
        }
    )


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
