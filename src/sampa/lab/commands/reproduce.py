"""`sampa reproduce`: the paper's tables and figures, one command each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from tyro.conf import Positional, arg

from sampa.lab.reproduce.catalog import EXPERIMENTS, find_experiment
from sampa.lab.reproduce.paper import published
from sampa.lab.reproduce.plan import AVERAGE, SCALES, Scale
from sampa.lab.reproduce.render import conditions, terminal_tables
from sampa.lab.reproduce.request import Request, Unfinished
from sampa.lab.reproduce.writing import write
from sampa.lab.training.jobs import as_many_as_fit
from sampa.messages import require


@dataclass(frozen=True)
class ReproduceArguments:
    """What `sampa reproduce` takes.

    Attributes:
        experiment: A table or figure; `--list` shows them.
        list: List the experiments with the paper's values, scales and times, and stop.
        scale: paper (its settings untouched; needs GPUs), cpu (reduced, on real data), or smoke
            (seconds, on embedded digits).
        seeds: How many seeds (default: what the experiment needs).
        devices: Processes a run.
        jobs: Runs at the same time (default: as many as there are GPUs, or else cores, for).
        out: Folder of all experiments and their runs.
        record: Folder for what is worth keeping: table, figures, and all numbers as JSON.
        plots: Also write each figure as SVG and PNG.
        data_dir: Where data sets are (default: the environment's SAMPA_DATA_DIR).
    """

    experiment: Annotated[Positional[str], arg(metavar="ID")] = ""
    list: bool = False
    scale: Scale = "cpu"
    seeds: int | None = None
    devices: int = 1
    jobs: int | None = None
    out: Path = Path("runs/reproduce")
    record: Path | None = None
    plots: bool = False
    data_dir: Path | None = None


def reproduce(arguments: Annotated[ReproduceArguments, arg(name="")]) -> int:
    """Run one of the paper's experiments and put its numbers beside the paper's.

    Finished runs are not repeated: the same command goes on where it stopped.

    Examples:
        sampa reproduce --list
        sampa reproduce fig-toy --plots
        sampa reproduce tab-noise --scale smoke
        sampa reproduce tab-noise --seeds 3 --data-dir ~/data
        sampa reproduce tab-cifar10 --scale paper --devices 2 --data-dir ~/data

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 and 143 stopped by Ctrl-C or SIGTERM after the
    running ones saved.

    Args:
        arguments: What to reproduce and how.
    """
    console = Console()
    if arguments.list or not arguments.experiment:
        console.print(experiment_list(console.width))
        return 0 if arguments.list else 2
    experiment = find_experiment(arguments.experiment)
    request = requested(arguments)
    try:
        outcome = experiment.carry_out(request)
    except Unfinished as error:
        print(f"{experiment.id}: {error}")
        return error.code
    for table in terminal_tables(outcome):
        console.print(table)
    console.print(conditions(outcome), *outcome.facts, sep="\n", highlight=False, markup=False)
    for folder in filter(None, (request.folder(experiment.id), arguments.record)):
        write(outcome, folder, request, plots=arguments.plots or arguments.record is not None)
        print(folder)
    return 0


def requested(arguments: ReproduceArguments) -> Request:
    """The request, checked."""
    require("devices", arguments.devices, arguments.devices >= 1, ">= 1")
    require("seeds", arguments.seeds, arguments.seeds is None or arguments.seeds >= 1, ">= 1")
    require("jobs", arguments.jobs, arguments.jobs is None or arguments.jobs >= 1, ">= 1")
    place = arguments.data_dir or os.environ.get("SAMPA_DATA_DIR")
    return Request(
        scale=arguments.scale,
        out=arguments.out,
        seeds=arguments.seeds,
        devices=arguments.devices,
        jobs=arguments.jobs or as_many_as_fit(arguments.devices),
        data_dir=None if place is None else Path(place),
    )


WIDE = 150  # columns of a terminal from which on there is room for a table


def experiment_list(width: int) -> Table:
    """Every experiment with the paper's values and times, as wide as the terminal allows."""
    return experiment_table() if width >= WIDE else experiment_blocks()


def experiment_table() -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=LISTED, show_lines=False)
    for column in ("ID", "what", "in the paper", *(f"time, {scale}" for scale in SCALES)):
        table.add_column(column, no_wrap=column == "ID")
    for experiment in EXPERIMENTS.values():
        times = [experiment.time[scale] for scale in SCALES]
        table.add_row(experiment.id, experiment.title, paper_values(experiment.id), *times)
    return table


def experiment_blocks() -> Table:
    """A few lines each: what it is, what the paper prints, how long it takes."""
    table = Table.grid(padding=(0, 2))
    table.title = f"{LISTED}\n"
    table.add_column(no_wrap=True)
    table.add_column()
    for experiment in EXPERIMENTS.values():
        times = ", ".join(f"{scale}: {experiment.time[scale]}" for scale in SCALES)
        table.add_row(f"[bold]{experiment.id}[/]", escape(experiment.title))
        table.add_row("  [dim]in the paper[/]", escape(paper_values(experiment.id)))
        table.add_row("  [dim]time[/]", times)
        table.add_row()
    return table


LISTED = "The paper's tables and figures"


def paper_values(name: str) -> str:
    """What the paper prints: a table's summary or last row, or what it says about a figure."""
    known = published(name)
    if not known.values:
        return known.claim
    row = next((row for row in (AVERAGE, "GLUE") if row in known.values), list(known.values)[-1])
    return f"{row}: {', '.join(f'{name} {value}' for name, value in known.values[row].items())}"
