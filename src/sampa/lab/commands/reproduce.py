"""`sampa reproduce`: the paper's tables and figures, one command each."""

from __future__ import annotations

import sys
from dataclasses import replace

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sampa.lab.commands.arguments import ReproduceArguments
from sampa.lab.conditions import Conditions
from sampa.lab.files import read_text
from sampa.lab.reproduce.catalog import EXPERIMENTS, find_experiment
from sampa.lab.reproduce.plan import Unfinished
from sampa.lab.reproduce.preflight import NotReady, require_ready
from sampa.lab.reproduce.records import write_outcome
from sampa.lab.results.fitted import Fitted
from sampa.lab.results.outcome import AVERAGE, NOTES
from sampa.lab.results.outcome_tables import difference_table, paper_cell, scale_line, value_table
from sampa.lab.results.paper import SCALES, published
from sampa.lab.terminal import harmless, say
from sampa.messages import wrong_usage


def main(arguments: ReproduceArguments) -> int:
    console = Console()
    if arguments.list or not arguments.experiment:
        console.print(experiment_list(console.width))
        return 0 if arguments.list else 2
    with wrong_usage():
        experiment = find_experiment(arguments.experiment)
    request = arguments.request
    if request.record is not None:  # before hours of work
        Conditions.now().require_committed("this command", allow_dirty=request.allow_dirty)
    try:
        require_ready(experiment, request)
    except NotReady as error:
        say(f"sampa reproduce: {error}", file=sys.stderr)
        return 1
    try:
        outcome = experiment.outcome(request)
    except Unfinished as error:
        say(f"{experiment.id}: {error}")
        return error.code
    outcome = replace(outcome, command=f"sampa reproduce {experiment.id} {request}")
    for table in (replace(value_table(outcome), title=outcome.heading), difference_table(outcome)):
        if table.rows:
            console.print(Fitted(table))
    lines = [harmless(line) for line in (scale_line(outcome), *outcome.facts)]
    console.print(*lines, sep="\n", highlight=False, markup=False)
    own, record = request.folder(experiment.id), request.record
    write_outcome(outcome, own, plots=arguments.plots)
    say(own)
    if record is not None and record.resolve() != own.resolve():
        what = f"runs in {own}, which were made before"
        outcome.conditions.require_committed(what, allow_dirty=request.allow_dirty)
        notes = record / NOTES
        text = read_text(notes) if notes.exists() else ""
        write_outcome(replace(outcome, notes=text), record, plots=True)
        say(record)
    return 0


WIDE_TABLE = 150  # columns of a terminal from which on there is room for a table


def experiment_list(width: int) -> Table:
    """Every experiment with the paper's values and times, as wide as the terminal allows."""
    return experiment_table() if width >= WIDE_TABLE else experiment_blocks()


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
    values = {name: paper_cell(value).text for name, value in known.values[row].items()}
    return f"{row}: {', '.join(f'{name} {value}' for name, value in values.items())}"
