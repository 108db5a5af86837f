"""`sampa eval`: judge a run's model again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from sampa.lab.models import build
from sampa.lab.training import checkpoint
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.launch import set_up_process
from sampa.lab.training.session import default_device
from sampa.lab.training.tasks import open_task


def main(
    run_folder: Positional[Path],
    which: Literal["best", "last"] | None = None,
    split: Literal["test", "validation"] = "test",
    data_dir: Path | None = None,
) -> int:
    """Evaluate the checkpoint of a run.

    Examples:
        sampa eval runs/digits-cpu/sampa/seed-0
        sampa eval runs/cifar10-cpu/sam/seed-1 --which last --split validation

    Args:
        run_folder: The folder that `sampa train` wrote.
        which: The best model on validation, or the newest; if not given, what the run reports.
        split: The data to judge it on.
        data_dir: Where data sets are (default: the environment's SAMPA_DATA_DIR).
    """
    set_up_process()
    folder = RunFolder(run_folder)
    run = folder.run()
    chosen = which or run.select
    found = checkpoint.newest(folder.checkpoints, "best-" if chosen == "best" else "step-", print)
    if found is None:
        raise ValueError(f"{run_folder} has no {chosen} checkpoint that is whole")
    place = data_dir or os.environ.get("SAMPA_DATA_DIR")
    task = open_task(run, None if place is None else Path(place), shard=0, shards=1)
    model = build(run.model.name, **run.model.options, **task.model_options())
    model.load_state_dict(found.state["model"])
    scores = task.evaluate(model.to(default_device()).eval(), split)
    shown = ", ".join(f"{name} {value:.2f}" for name, value in scores.items())
    print(f"{run.name} {run.method} seed {run.seed}, {found.path.name}: {split} {shown}")
    return 0
