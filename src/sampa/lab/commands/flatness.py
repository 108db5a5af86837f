"""`sampa flatness`: how flat the loss is around finished models."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from rich.console import Console

from sampa.lab.commands.arguments import FlatnessArguments
from sampa.lab.commands.compare import without_paths
from sampa.lab.conditions import Conditions
from sampa.lab.files import replace_file
from sampa.lab.flatness.kinds import MEASURES, NUMBERS, PICTURES
from sampa.lab.flatness.outcome import Found, collected
from sampa.lab.flatness.page import flatness_page, tables_of, write_flatness_record
from sampa.lab.flatness.ranks import correlation_table
from sampa.lab.flatness.saved import write_found
from sampa.lab.flatness.settings import FLATNESS_FILE
from sampa.lab.flatness.subjects import Subject, of_runs, of_weights
from sampa.lab.flatness.sweep import PART, jobs_of, share, work, work_together
from sampa.lab.results.fitted import Fitted
from sampa.lab.terminal import say
from sampa.lab.training.jobs import gpus_each
from sampa.lab.training.launch import set_up_process
from sampa.messages import WrongUsage, require, unknown, wrong_usage


def main(arguments: FlatnessArguments) -> int:
    set_up_process(arguments.threads)
    subjects, measures = found_subjects(arguments), chosen(arguments)
    settings, out = arguments.settings, arguments.out
    if arguments.record is not None:
        Conditions.now().require_committed("this command", allow_dirty=arguments.allow_dirty)
    jobs = jobs_of(subjects, measures, settings, out)
    part, _, parts = os.environ.get(PART, "").partition("/")
    if part:
        work(share(jobs, int(part), int(parts)), settings, arguments.data_dir)
        return 0
    processes = min(arguments.devices or torch.cuda.device_count() or 1, len(jobs))
    if processes > 1:
        code = work_together(jobs, gpus_each(processes, 1))
        if code:
            what = "stopped" if code > 128 else "a process failed"
            say(f"sampa flatness: {what}; the same command goes on", file=sys.stderr)
            return code
    else:
        work(jobs, settings, arguments.data_dir)
    command = " ".join(["sampa", *without_paths(sys.argv[1:])])
    tell(collected(jobs, settings, Conditions.now(), command), arguments)
    return 0


def tell(found: Found, arguments: FlatnessArguments) -> None:
    """Print the tables, and write what was asked for."""
    for recipe in found.recipes:
        for table in filter(None, [*tables_of(found, recipe), correlation_table(found, [recipe])]):
            Console().print(Fitted(table))
    write_found(found, arguments.out / FLATNESS_FILE)
    if arguments.json is not None:
        write_found(found, arguments.json)
    if arguments.html is not None:
        replace_file(arguments.html, flatness_page(found).encode())
    if arguments.record is not None:
        write_flatness_record(found, arguments.record)


def found_subjects(arguments: FlatnessArguments) -> list[Subject]:
    """The finished runs below the folders, and the models with weights of one's own."""
    folders = [file.parent for folder in arguments.runs for file in _results(folder)]
    subjects = of_runs(list(dict.fromkeys(folders)), arguments.which)
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
    with wrong_usage():
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
