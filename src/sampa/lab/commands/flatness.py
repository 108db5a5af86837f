"""`sampa flatness`: how flat the loss is around finished models."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from rich.console import Console

from sampa.lab.commands.arguments import FlatnessArguments
from sampa.lab.commands.compare import without_paths
from sampa.lab.files import replace_file
from sampa.lab.flatness.measures import MEASURES, NUMBERS, PICTURES
from sampa.lab.flatness.outcome import collected, correlation_table, difference_table, value_table
from sampa.lab.flatness.page import page, write_record
from sampa.lab.flatness.subjects import Subject, of_run, of_weights
from sampa.lab.flatness.sweep import PART, jobs_of, share, work, work_together
from sampa.lab.results.table import for_terminal
from sampa.lab.terminal import say
from sampa.lab.training.conditions import conditions, require_committed
from sampa.lab.training.jobs import gpus_each
from sampa.lab.training.launch import set_up_process
from sampa.messages import WrongUsage, require, unknown


def main(arguments: FlatnessArguments) -> int:
    set_up_process(arguments.threads)
    subjects, measures = found_subjects(arguments), chosen(arguments)
    settings, out = arguments.settings, arguments.out
    if arguments.record is not None:
        require_committed(conditions(), "this command", allow_dirty=arguments.allow_dirty)
    require("devices", arguments.devices, arguments.devices >= 1, ">= 1")
    jobs = jobs_of(subjects, measures, settings, out)
    part = os.environ.get(PART)
    if part is not None:
        work(share(jobs, int(part), arguments.devices), settings, arguments.data_dir)
        return 0
    if arguments.devices > 1:
        places = gpus_each(arguments.devices, 1)
        code = work_together(jobs, arguments.devices, places)
        if code:
            say("stopped or failed; the same command goes on", file=sys.stderr)
            return code
    else:
        work(jobs, settings, arguments.data_dir)
    command = " ".join(["sampa", *without_paths(sys.argv[1:])])
    found = collected(jobs, settings, conditions(), command)
    for recipe in found.recipes:
        for table in filter(None, [value_table(found, recipe), difference_table(found, recipe)]):
            Console().print(for_terminal(table))
    verdicts = correlation_table(found)
    if verdicts is not None:
        Console().print(for_terminal(verdicts))
    if arguments.json is not None:
        text = json.dumps(found.as_json(), indent=1)
        replace_file(arguments.json, f"{text}\n".encode())
    if arguments.html is not None:
        replace_file(arguments.html, page(found).encode())
    if arguments.record is not None:
        write_record(found, arguments.record)
    return 0


def found_subjects(arguments: FlatnessArguments) -> list[Subject]:
    """The finished runs below the folders, and the models with weights of one's own."""
    subjects = [
        of_run(file.parent, arguments.which)
        for folder in arguments.runs
        for file in _results(folder)
    ]
    pairs = zip(arguments.model, arguments.weights, strict=False)
    if len(arguments.model) != len(arguments.weights):
        raise WrongUsage(
            f"--model and --weights must be as many, got {len(arguments.model)} and "
            f"{len(arguments.weights)}"
        )
    subjects += [of_weights(model, weights, arguments.recipe) for model, weights in pairs]
    if not subjects:
        raise WrongUsage("name folders of finished runs, or --model and --weights")
    names = [s.name for s in subjects]
    twice = next((name for name in names if names.count(name) > 1), None)
    require("the models", twice, twice is None, "different from each other in recipe, method, seed")
    return subjects


def _results(folder: Path) -> list[Path]:
    found = sorted(folder.rglob("result.json"))
    require(str(folder), "no result.json", bool(found), "a folder with finished runs")
    return found


def chosen(arguments: FlatnessArguments) -> list[str]:
    """The measures that were asked for: names, or `numbers`, `pictures` and `all`."""
    groups = {"numbers": NUMBERS, "pictures": PICTURES, "all": tuple(MEASURES)}
    names: dict[str, None] = {}
    for name in arguments.measures:
        if name not in MEASURES and name not in groups:
            raise WrongUsage(unknown("a measure", name, [*MEASURES, *groups]))
        names |= dict.fromkeys(groups.get(name, (name,)))
    return list(names)
