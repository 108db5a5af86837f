"""`sampa train`: carry out one run."""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from sampa.lab.training.launch import end_with_launcher, is_launched, launch, set_up_process
from sampa.lab.training.loop import Interrupted, Settings, checked_method
from sampa.lab.training.loop import train as carry_out
from sampa.lab.training.ranks import is_first
from sampa.lab.training.recipes import RECIPES, find_recipe
from sampa.lab.training.run import Run, read_run
from sampa.lab.training.session import StepFailed, default_device
from sampa.messages import require


@dataclass(frozen=True)
class TrainArguments:
    """What `sampa train` takes.

    Attributes:
        recipe: The experiment; `--list` shows them. A run.json repeats the run it describes.
        list: List the recipes and stop.
        method: A method, such as sgd, sam, sampa, sampa-0.1, looksam; the recipe's if not given.
        rho: Perturbation radius.
        lam: SAMPa's λ.
        lr: Learning rate.
        devices: Processes to start on this machine.
        epochs: Passes over the data.
        limit_steps: Stop after this many batches, to try things out.
        batch_size: Samples a batch, over all devices of a branch.
        model_path: Folder with pretrained weights (ViT, BERT).
        seed: Of weights, order, augmentation, noise (default: 0, or the run.json's).
        data_dir: Where data sets are (default: the environment's SAMPA_DATA_DIR).
        out: Folder of the run (default: runs/RECIPE/METHOD/seed-SEED).
        resume: Go on with the run in that folder.
        strict: With --resume: refuse conditions that may change the last bits (torch version,
            threads, processor, number of shards) instead of warning.
        allow_changes: With --resume: accept other hyper-parameters than the run began with.
        save_every: Batches between checkpoints (default: once an epoch).
        max_restarts: With several devices: start again from the last checkpoint after a failure.
        timeout: Seconds after which a rank gives up on the others.
        amp: Half precision.
        compile: Compile the model.
        tensorboard: Also write TensorBoard curves.
        threads: CPU threads a process (default: cores shared evenly).
        device: Where the model is (default: the GPU of this rank, or the CPU).
    """

    recipe: Annotated[Positional[str], arg(metavar="RECIPE")] = ""
    list: bool = False
    method: str | None = None
    rho: float | None = None
    lam: float | None = None
    lr: float | None = None
    devices: int = 1
    epochs: int | None = None
    limit_steps: int | None = None
    batch_size: int | None = None
    model_path: Path | None = None
    seed: int | None = None
    data_dir: Path | None = None
    out: Path | None = None
    resume: bool = False
    strict: bool = False
    allow_changes: bool = False
    save_every: int | None = None
    max_restarts: int = 0
    timeout: float = 300.0
    amp: Literal["bf16", "fp16"] | None = None
    compile: bool = False
    tensorboard: bool = False
    threads: int | None = None
    device: str | None = None


def train(arguments: Annotated[TrainArguments, arg(name="")]) -> int:
    """Train a recipe with a method, on one device or several.

    Examples:
        sampa train --list
        sampa train digits-cpu --method sampa
        sampa train cifar10-resnet56 --method sampa --devices 2 --data-dir ~/data
        sampa train cifar10-resnet56 --method sampa --devices 2 --resume
        torchrun --nproc-per-node 4 -m sampa train cifar10-wrn-28-10

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 and 143 stopped by Ctrl-C or SIGTERM after
    saving: the same command with --resume goes on.

    Args:
        arguments: What to train and how.
    """
    if arguments.list or not arguments.recipe:
        Console().print(recipe_table())
        return 0 if arguments.list else 2
    run = configured(arguments)
    checked_method(run)
    if arguments.devices > 1 and not is_launched():
        return launch(arguments.devices, sys.argv[1:], arguments.max_restarts)
    if is_launched():
        end_with_launcher()
    set_up_process(arguments.threads)
    out = arguments.out or default_folder(run)
    try:
        result = carry_out(run, settings(arguments, out))
    except Interrupted as stopped:
        if is_first():
            print(f"{stopped}; saved in {out}. Go on with the same command and --resume.")
        return 128 + stopped.signal_number
    except StepFailed as failed:
        return tell(failed)
    if is_first():
        print(summary(run, result, out))
    return 0


def tell(failed: StepFailed) -> int:
    """Rank, batch and cause first; then where in the code, unless the cause says it all."""
    print(f"sampa train: {failed}", file=sys.stderr, flush=True)
    if not isinstance(failed.__cause__, OSError | ValueError):
        traceback.print_exception(failed.__cause__)
    return 1


def configured(arguments: TrainArguments) -> Run:
    """The recipe's run with the command line's changes."""
    run = described(arguments.recipe)
    base = None if arguments.lr is None else {"lr": arguments.lr}
    changes: dict[str, Any] = {
        "method": arguments.method,
        "rho": arguments.rho,
        "lam": arguments.lam,
        "epochs": arguments.epochs,
        "base_epochs": arguments.epochs,
        "batch_size": arguments.batch_size,
        "seed": arguments.seed,
        "amp": arguments.amp,
        "compile": arguments.compile or None,
    }
    if arguments.model_path is not None:
        options = {**run.model.options, "path": str(arguments.model_path)}
        changes["model"] = replace(run.model, options=options)
    return run.changed(**changes).with_base(base)


def described(recipe: str) -> Run:
    """The run of a recipe's name, or of a file that a run left behind."""
    return read_run(Path(recipe)) if recipe.endswith(".json") else find_recipe(recipe)


def settings(arguments: TrainArguments, out: Path) -> Settings:
    data_dir = arguments.data_dir or os.environ.get("SAMPA_DATA_DIR")
    return Settings(
        out=out,
        data_dir=None if data_dir is None else Path(data_dir),
        resume=arguments.resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0,
        strict=arguments.strict,
        allow_changes=arguments.allow_changes,
        timeout=arguments.timeout,
        limit_steps=arguments.limit_steps,
        save_every=arguments.save_every,
        device=arguments.device or default_device(),
        tensorboard=arguments.tensorboard,
    )


def default_folder(run: Run) -> Path:
    """Where a run goes if nobody says where.

    Raises:
        ValueError: If a name would lead out of the folder of all runs.
    """
    for name in (run.name, run.method):
        plain = name == Path(name).name and name not in ("", "..") and "\0" not in name
        require("the name of a run", name, plain, "the name of one folder; or pass --out")
    return Path("runs") / run.name / run.method / f"seed-{run.seed}"


def summary(run: Run, result: dict[str, Any], out: Path) -> str:
    scores = ", ".join(f"{name} {value:.2f}" for name, value in result["test"].items())
    is_best = run.select == "best" and result["best_epoch"] >= 0
    chosen = f"epoch {result['best_epoch'] + 1}, best on validation" if is_best else "last"
    return f"{run.name} {run.method} seed {run.seed}: test {scores} ({chosen}); {out}"


def recipe_table() -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="Recipes; names that end in -cpu are reduced editions")
    for column in ("recipe", "what it is"):
        table.add_column(column)
    for name, recipe in RECIPES.items():
        table.add_row(name, recipe().about)
    return table
