"""What each command takes: its options, their help and its examples.

Nothing here imports torch, so that help and errors in arguments come at once.
"""

from __future__ import annotations

import inspect
import re
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional, arg

from sampa.lab.flatness.settings import SweepSettings as FlatnessSettings
from sampa.lab.options import (
    Count,
    Folder,
    Folders,
    Names,
    Natural,
    NotNegative,
    Positive,
    Rule,
    Values,
    options,
    require_rules,
)
from sampa.lab.reproduce.request import Request
from sampa.lab.training.own import Named, as_named
from sampa.lab.training.run import SEED, Run
from sampa.lab.training.session import Settings


@options
@dataclass(frozen=True)
class Changes:
    """What the command line may change of a recipe; None leaves it as it is.

    Attributes:
        method: A method, such as sgd, sam, sampa, sampa-0.1, looksam; the recipe's if not given.
        rho: Perturbation radius.
        lam: SAMPa's λ.
        data: In place of the recipe's: a data set of ours, or your own: folder:PATH (a folder a
            class), hf:PATH (a data set of Hugging Face on disk), or a function that
            returns (train, test), as file.py:NAME or package.module:NAME.
        model: In place of the recipe's: a network of ours, or your own: hf:PATH (a model folder of
            Hugging Face), or a class or function, as file.py:NAME or package.module:NAME.
        size: Side of the images that are seen, or tokens after which text is cut.
        lr: Learning rate.
        epochs: Passes over the data.
        batch_size: Samples a batch, over all devices of a branch.
        model_path: Folder with pretrained weights (ViT, BERT).
        seed: Of weights, order, augmentation, noise (default: 0, or the run.json's).
        amp: Half precision.
        compile: Compile the model.
    """

    method: str | None = None
    rho: NotNegative | None = None
    lam: NotNegative | None = None
    data: str | None = None
    model: str | None = None
    size: Count | None = None
    lr: Positive | None = None
    epochs: Count | None = None
    batch_size: Count | None = None
    model_path: Path | None = None
    seed: Natural | None = None
    amp: Literal["bf16", "fp16"] | None = None
    compile: bool = False

    def named(self) -> Named:
        """What is the user's own."""
        return Named(self.data, self.model, self.model_path)

    def applied_to(self, run: Run) -> Run:
        """The run with these changes."""
        changes: dict[str, Any] = {**vars(self), "compile": self.compile or None}
        lr, size = changes.pop("lr"), changes.pop("size")
        for name in ("data", "model", "model_path"):
            del changes[name]
        run = as_named(run, self.named())
        if lr is not None:
            changes["base"] = replace(run.base, lr=lr)
        if size is not None:
            changes["data"] = replace(run.data, size=size)
        return run.changed(base_epochs=self.epochs, **changes)


@options
@dataclass(frozen=True)
class TrainArguments:
    """Train a recipe with a method, on one device or several.

    Examples:
        sampa train --list
        sampa train digits-cpu --method sampa
        sampa train cifar10-resnet56 --method sampa --devices 2 --data-dir ~/data
        sampa train cifar10-resnet56 --method sampa --devices 2 --resume
        sampa train cifar10-wrn-28-10 --method sampa --devices 4 --shard
        torchrun --nproc-per-node 4 -m sampa train cifar10-wrn-28-10
        sampa train images --data folder:photos --model resnet56 --size 64
        sampa train images --data data.py:load --model nets.py:Net
        sampa train text --data hf:reviews --model hf:bert
        sampa train recipe.py:mine
        sampa train mine.json --model nets.py:Net

    Only code that is named on the command line is executed: what a JSON file names must be named
    again with --data and --model.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 and 143 stopped by Ctrl-C or SIGTERM after
    saving: the same command with --resume goes on.

    Attributes:
        recipe: The experiment; `--list` shows them. Or your own: file.py:FUNCTION, which returns a
            Run, or a JSON file with the fields of one. A run.json repeats the run it describes.
        list: List the recipes and stop.
        devices: Processes to start on this machine.
        out: Folder of the run (default: runs/RECIPE/METHOD/seed-SEED).
        max_restarts: With several devices: start again from the last checkpoint after a failure.
        threads: CPU threads a process (default: cores shared evenly).
    """

    recipe: Annotated[Positional[str], arg(metavar="RECIPE")] = ""
    list: bool = False
    changes: Annotated[Changes, arg(name="")] = field(default_factory=Changes)
    devices: Count = 1
    out: Path | None = None
    settings: Annotated[Settings, arg(name="")] = field(default_factory=Settings)
    max_restarts: Natural = 0
    threads: Count | None = None


@options
@dataclass(frozen=True)
class Grid:
    """What all runs of a grid have in common, and how they are made.

    Attributes:
        data: In place of the recipe's, as for `sampa train`.
        model: Likewise.
        jobs: Runs at the same time; each has its share of the cores, and GPUs of its own.
        devices: Processes a run.
        data_dir: Where data sets are (default: the environment's SAMPA_DATA_DIR).
        extra: Further options of `sampa train` for every run, as one text,
            such as --extra="--epochs 3 --lr 0.1".
    """

    data: str | None = None
    model: str | None = None
    jobs: Count = 1
    devices: Count = 1
    data_dir: Folder | None = None
    extra: str = ""


@options
@dataclass(frozen=True)
class CompareArguments:
    """Run every method with every seed, skip what is done, and print mean ± std.

    Examples:
        sampa compare digits-cpu --methods sgd sam sampa --seeds 3
        sampa compare cifar10-cpu --methods sgd sam sampa-0 sampa --seeds 5 --jobs 2
        sampa compare cifar10-resnet56 --methods sam sampa --devices 2
        sampa compare digits-cpu --extra="--epochs 3 --lr 0.1"
        sampa compare images --data folder:photos --model nets.py:Net

    Calling it again goes on where it stopped. Exit codes: 0 all runs are done, 1 some failed, 2
    wrong usage, 130 and 143 stopped by Ctrl-C or SIGTERM after the running ones saved.

    Attributes:
        recipe: The experiment; `sampa train --list` shows them. Or your own, as for `sampa train`.
        methods: The methods to compare.
        seeds: How many seeds each.
        first_seed: The seeds are first_seed, first_seed + 1, ...
        out: Folder of all runs (default: runs/RECIPE).
        record: Folder for results.json and README.md: all numbers with their conditions.
        allow_dirty: Record although the source has changes that are not committed; the record says
            so.
    """

    recipe: Annotated[Positional[str], arg(metavar="RECIPE")]
    methods: Names = ("sgd", "sam", "sampa")
    seeds: Count = 3
    first_seed: Natural = 0
    out: Path | None = None
    grid: Annotated[Grid, arg(name="")] = field(default_factory=Grid)
    record: Path | None = None
    allow_dirty: bool = False


@options
@dataclass(frozen=True)
class SweepArguments:
    """Try values of ρ and λ, and choose those that are best on validation data.

    Every combination is trained with seeds that no comparison uses, and judged on data that is
    held back from training; test data is not looked at. It prints a table, the best values, and a
    command and a line of Python with them. What is done is kept: the same command goes on, and one
    with more values or seeds makes only what is missing.

    Examples:
        sampa sweep digits-cpu
        sampa sweep digits-cpu --rho 0.02,0.05,0.1 --lam 0,0.2
        sampa sweep cifar10-resnet56 --method sam --rho 0.05,0.1,0.2 --devices 2
        sampa sweep cifar10-cpu --rho 0.05,0.1,0.2,0.4 --seeds 3 --jobs 2
        sampa sweep images --data folder:photos --model nets.py:Net --extra="--epochs 30"

    A run whose loss diverges counts as the worst, and is not made again; remove its folder to try
    it once more. Exit codes: 0 chosen, 1 some runs failed or all diverged, 2 wrong usage, 130 and
    143 stopped by Ctrl-C or SIGTERM after the running ones saved.

    Attributes:
        recipe: The experiment; `sampa train --list` shows them. Or your own, as for `sampa train`.
        rho: Radii to try; the default is the paper's grid.
        lam: SAMPa's λ to try (default: the method's own).
        method: The method (default: the recipe's, most often sampa).
        seeds: How many seeds each; more tell better which differences are chance.
        first_seed: The seeds are first_seed, first_seed + 1, ...
        out: Folder of all runs (default: sweeps/RECIPE/METHOD).
    """

    recipe: Annotated[Positional[str], arg(metavar="RECIPE")]
    rho: Values = ("0.01,0.05,0.1,0.2,0.4",)
    lam: Values = ()
    method: str | None = None
    seeds: Count = 1
    first_seed: Natural = SEED
    out: Path | None = None
    grid: Annotated[Grid, arg(name="")] = field(default_factory=Grid)


@options
@dataclass(frozen=True)
class ReproduceArguments:
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

    Attributes:
        experiment: A table or figure; `--list` shows them.
        list: List the experiments with the paper's values, scales and times, and stop.
        plots: Also write each figure as SVG and PNG.
    """

    experiment: Annotated[Positional[str], arg(metavar="ID")] = ""
    list: bool = False
    request: Annotated[Request, arg(name="")] = field(default_factory=Request)
    plots: bool = False


@options
@dataclass(frozen=True)
class EvalArguments:
    """Evaluate the checkpoint of a run.

    Examples:
        sampa eval runs/digits-cpu/sampa/seed-0
        sampa eval runs/cifar10-cpu/sam/seed-1 --which last --split validation
        sampa eval runs/mine/sampa/seed-0 --data data.py:load --model nets.py:Net

    Attributes:
        run_folder: The folder that `sampa train` wrote.
        which: The best model on validation, or the newest; if not given, what the run reports.
        split: The data to judge it on.
        data: The run's data, if it is code of your own: its files are not trusted to name code.
        model: The run's network, if it is your own: likewise.
        model_path: Pretrained weights, if the run began from some: likewise.
        data_dir: Where data sets are (default: the environment's SAMPA_DATA_DIR).
    """

    run_folder: Positional[Folder]
    which: Literal["best", "last"] | None = None
    split: Literal["test", "validation"] = "test"
    data: str | None = None
    model: str | None = None
    model_path: Path | None = None
    data_dir: Folder | None = None


@options
@dataclass(frozen=True)
class FlatnessArguments:
    """Measure how flat the loss is around finished models: sharpness, curvature, landscapes.

    Every measure of every model is a job of its own, kept in --out: the same command goes on where
    it stopped. Intervals are over seeds where a method has several, else over batches.

    Examples:
        sampa flatness runs/cifar10-cpu
        sampa flatness runs/cifar10-cpu --measures all --html flatness.html --json flatness.json
        sampa flatness runs/digits-cpu/sam/seed-0 --measures sharpness eigenvalue --devices 2
        sampa flatness runs/digits-cpu --measures path triangle --html between.html
        sampa flatness --model resnet20 --weights resnet20.th --recipe cifar10-resnet56
        sampa flatness --model mypackage.models:Net --weights net.pt --recipe cifar10-cpu

    Attributes:
        runs: Folders with finished runs.
        measures: Names, or numbers, pictures, all; a wrong name lists them.
        model: Of one's own: a network's name, package.module:Class, file.py:name or hf:PATH, one
            for each of --weights.
        weights: A file of its weights.
        recipe: Whose data and loss --model is judged by.
        which: The checkpoint of a run: best on validation, or last (default: what it reports).
        out: Folder of the jobs, and of flatness.json, which `sampa report` shows.
        devices: Processes that share the jobs, each with a GPU of its own where there are
            some (default: as many as there are GPUs, else 1).
        threads: CPU threads a process (default: cores shared evenly).
        data_dir: Where data sets are (default: the environment's SAMPA_DATA_DIR).
        json: Write all numbers to this file.
        html: Write a page with tables and pictures to this file.
        record: Folder for flatness.json, README.md and pictures.
        allow_dirty: Record although the source has changes that are not committed.
    """

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="DIR...")] = ()
    measures: tuple[str, ...] = ("numbers",)
    model: tuple[str, ...] = ()
    weights: tuple[Path, ...] = ()
    recipe: str = "cifar10-resnet56"
    which: Literal["best", "last"] | None = None
    settings: Annotated[FlatnessSettings, arg(name="")] = field(default_factory=FlatnessSettings)
    out: Path = Path("runs/flatness")
    devices: Count | None = None
    threads: Count | None = None
    data_dir: Folder | None = None
    json: Path | None = None
    html: Path | None = None
    record: Path | None = None
    allow_dirty: bool = False


@options
@dataclass(frozen=True)
class ReportArguments:
    """Make one HTML page from all runs below some folders.

    The page has tables, curves and the conditions of each recipe, and needs no network: everything
    is in the one file. Runs that are unfinished or unreadable are listed with the reason. A file
    paper.json in a folder puts published values beside those of the runs below it:

        {"metric": "accuracy", "source": "Table 2",
         "values": {"sam": [94.26, 0.70]}}

    Examples:
        sampa report runs
        sampa report runs/digits-cpu runs/cifar10-cpu -o comparison.html
        sampa report runs --baseline sam

    Attributes:
        folders: Where to look for runs.
        out: The file to write.
        baseline: The method that the others are compared with (default: the first of each recipe).
    """

    folders: Annotated[Positional[Folders], arg(metavar="DIR...")]
    out: Annotated[Path, arg(aliases=("-o",), metavar="FILE")] = Path("report.html")
    baseline: Annotated[str, arg(metavar="NAME")] | None = None


@options
@dataclass(frozen=True)
class BenchArguments:
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
        sampa bench --device cuda --model resnet50 --batch-size 64
        sampa bench --count --model resnet56
        sampa bench --model nets.py:Net --shape 1x28x28 --batch-size 64 --advise
        sampa bench --device cuda --model resnet50 --advise --gpus 64 --link 200

    Attributes:
        model: A network by name, such as resnet20, resnet56, mlp, bert-mini; or your own, as
            for `sampa train`: hf:PATH, file.py:NAME or package.module:NAME.
        shape: Of one sample, for a network of your own: such as 3x32x32, or 64 for 64 numbers.
        batch_size: Samples in a batch; data-parallel contenders share one.
        rounds: Steps of each contender; more make the medians steadier (default: as many as take
            about two minutes, and 5 at the least).
        base: The base optimizer, sgd (with momentum) or adamw.
        device: Such as cpu or cuda (default: the accelerator of this machine, or else the CPU).
        all_methods: Measure LookSAM, AE-SAM, SAF, MESA and ESAM too.
        memory: Measure the peak memory of a process as well; each takes a few seconds.
        own_cost: Measure a step beyond its gradients too, up to 10^8 parameters (3 GB, minutes).
        count: Only count what a step would cost a GPU: waits of the host, kernels, buffers. No GPU
            is needed.
        advise: End with two sentences on what to use here.
        gpus: Predict steps on this many devices too, each as fast as the one measured; an even
            number.
        link: Gbit/s between any two of those devices.
        json: Write the results to this file.
        html: Write a page with the results to this file.
        timeline: Write an SVG of one step of SAMPa on two ranks to this file.
    """

    model: str = "resnet20"
    shape: str = ""
    batch_size: Annotated[int, Rule(">= 2", lambda v: v >= 2)] = 128
    rounds: Count | None = None
    base: Literal["sgd", "adamw"] = "sgd"
    device: str | None = None
    all_methods: bool = False
    memory: bool = False
    own_cost: bool = False
    count: bool = False
    advise: bool = False
    gpus: Annotated[int, Rule("even and >= 2", lambda v: v >= 2 and v % 2 == 0)] | None = None
    link: Positive = 100.0
    json: Path | None = None
    html: Path | None = None
    timeline: Path | None = None


@options
@dataclass(frozen=True)
class DemoArguments:
    """Compare SGD, SAM and SAMPa-0.2 on digits with 40 % wrong labels, on two processes.

    The digits are embedded in scikit-learn: nothing is downloaded. SGD gets twice the epochs, as in
    the paper. The last models are tested, and SGD memorizes many of the wrong labels by then: its
    best model on the way is better. Then the steps of SAM and SAMPa are timed in turns. What is
    trained is not repeated; remove the folder to start again.

    Examples:
        sampa demo
        sampa demo --devices 1 --seeds 1

    Attributes:
        devices: Processes; SAMPa computes its two gradients on two of them.
        seeds: Runs of each method.
        out: Folder of the runs and of report.html.
    """

    devices: Count = 2
    seeds: Count = 3
    out: Annotated[Path, arg(metavar="DIR")] = Path("runs/demo")


@options
@dataclass(frozen=True)
class MethodsArguments:
    """List all methods with their cost and defaults.

    The counts come from running each method on a problem with two weights: gradients (probes) and
    sequential gradients (rounds) per update, and weight-sized copies kept through a step.

    Examples:
        sampa methods
        sampa methods --json methods.json

    Attributes:
        json: Also write the table as JSON to this file.
    """

    json: Path | None = None


ARGUMENTS: dict[str, type[Any]] = {
    "train": TrainArguments,
    "compare": CompareArguments,
    "sweep": SweepArguments,
    "reproduce": ReproduceArguments,
    "eval": EvalArguments,
    "flatness": FlatnessArguments,
    "report": ReportArguments,
    "bench": BenchArguments,
    "demo": DemoArguments,
    "methods": MethodsArguments,
}


def read_arguments(name: str, args: Sequence[str]) -> Any:
    """What a command was given.

    Raises:
        WrongUsage: If a value is not possible, in one line.
        SystemExit: After help was asked for and printed, or if options are not known.
    """
    kind = ARGUMENTS[name]
    found = tyro.cli(
        kind,
        prog=f"sampa {name}",
        # The docstring up to its attributes, examples included, as it was laid out.
        description=_wrapped((inspect.getdoc(kind) or "").split("\nAttributes:")[0].rstrip()),
        args=args,
        config=(tyro.conf.DisallowNone, tyro.conf.FlagCreatePairsOff),
    )
    require_rules(found)
    return found


def _wrapped(text: str) -> str:
    """Paragraphs as wide as the terminal; examples too, so that they can be pasted."""
    width = min(shutil.get_terminal_size().columns, 100)
    return "\n\n".join(_paragraph(part, width) for part in text.split("\n\n"))


def _paragraph(text: str, width: int) -> str:
    if "    " not in text:
        # tyro would join lines that begin with a letter: these begin with a space of no width.
        return "\n\u200b".join(textwrap.wrap(text, width, break_on_hyphens=False))
    return "\n".join(_example(line, width) for line in text.split("\n"))


def _example(line: str, width: int) -> str:
    """A command that the shell still reads as one; an option stays with its value."""
    if len(line) <= width or "sampa " not in line:
        return line
    bound = re.sub(r"(--?[a-z-]+) (?=[^-])", "\\1\0", line)
    parts = textwrap.wrap(bound, width - 2, break_on_hyphens=False, subsequent_indent=" " * 8)
    return " \\\n".join(parts).replace("\0", " ")
