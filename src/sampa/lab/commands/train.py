"""`sampa train`: carry out one run."""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from sampa.lab.children import follow_parent
from sampa.lab.commands.arguments import TrainArguments
from sampa.lab.results.fitted import Fitted
from sampa.lab.results.outcome import RunResult
from sampa.lab.results.table import Table, row
from sampa.lab.terminal import say
from sampa.lab.training.own import as_named
from sampa.lab.training.recipes import RECIPES, find_recipe, recipe_of
from sampa.lab.training.run import Run
from sampa.lab.training.session import Interrupted, StepFailed
from sampa.messages import require, wrong_usage


def main(arguments: TrainArguments) -> int:
    if arguments.list or not arguments.recipe:
        Console().print(Fitted(recipe_table()))
        return 0 if arguments.list else 2
    run = possible_run(arguments)
    # Only now: a list, or an error in what was asked for, need not wait for torch.
    from sampa.lab.training.claim import FolderReplaced
    from sampa.lab.training.launch import is_launched, launch, set_up_process
    from sampa.lab.training.loop import train
    from sampa.lab.training.ranks import is_first

    if arguments.devices > 1 and not is_launched():
        return launch(arguments.devices, sys.argv[1:], arguments.max_restarts)
    if is_launched():
        follow_parent(os.getppid())  # torchrun, which tells nothing
    set_up_process(arguments.threads)
    out, settings = arguments.out or default_folder(run), arguments.settings
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0:
        settings = replace(settings, resume=True)
    try:
        result = train(run, out, settings)
    except Interrupted as stopped:
        if is_first():
            saved = f"; saved in {out}" if stopped.is_saved else f" in {out}"
            say(f"{stopped}{saved}. Go on with the same command and --resume.")
        return 128 + stopped.signal_number
    except StepFailed as failed:
        # Rank, batch and cause first; then where in the code, unless the cause says it all.
        say(f"sampa train: {failed}", file=sys.stderr)
        if not isinstance(failed.__cause__, OSError | ValueError | FolderReplaced):
            say("".join(traceback.format_exception(failed.__cause__)), file=sys.stderr, end="")
        return 1
    if is_first():
        say(summary(run, result, out))
    return 0


def possible_run(arguments: TrainArguments) -> Run:
    """The run that is asked for, if it is possible here: before anything is started or written.

    Raises:
        WrongUsage: If it is not.
        ValueError: If the file that describes it is damaged.
    """
    run = configured(arguments)
    from sampa.lab.devices import find_device
    from sampa.lab.training.method import branches_of, checked_method
    from sampa.lab.training.sharding import require_run_shards

    with wrong_usage():
        for rank in range(arguments.devices):
            find_device(arguments.settings.device, rank)
        method = checked_method(run)
        branches_of(run, method, arguments.devices)
        require_run_shards(run, method, arguments.settings)
    return run


def configured(arguments: TrainArguments) -> Run:
    """The run of a recipe, ours or the user's own, or of a run.json, with all changes."""
    changes, run = arguments.changes, None
    if arguments.recipe.endswith(".json"):  # what is wrong with a file is not wrong usage
        run = as_named(recipe_of(arguments.recipe), changes.named())
    with wrong_usage():
        return changes.applied_to(run or recipe_of(arguments.recipe))


def default_folder(run: Run) -> Path:
    """The folder of a run that is given none.

    Raises:
        ValueError: If a name would lead out of the folder of all runs.
    """
    for name in (run.name, run.method):
        plain = name == Path(name).name and name not in ("", "..") and "\0" not in name
        require("the name of a run", name, plain, "the name of one folder; or pass --out")
    return Path("runs") / run.name / run.method / f"seed-{run.seed}"


def summary(run: Run, result: RunResult, out: Path) -> str:
    """The line that a run ends with."""
    scores = ", ".join(f"{name} {value:.2f}" for name, value in result.test.items())
    is_best = run.select == "best" and result.best_epoch >= 0
    chosen = f"epoch {result.best_epoch + 1}, best on validation" if is_best else "last"
    return f"{run.name} {run.method} seed {run.seed}: test {scores} ({chosen}); {out}"


def recipe_table() -> Table:
    rows = tuple(row(name, find_recipe(name).about) for name in RECIPES)
    title = "Recipes; names that end in -cpu are reduced editions"
    return Table(title, ("recipe", "what it is"), rows)
