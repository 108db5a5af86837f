"""The model that a run left behind, with its task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from sampa.lab.models import build
from sampa.lab.terminal import say
from sampa.lab.training import checkpoint
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.run import Run, with_trusted_weights
from sampa.lab.training.tasks import ImageTask, open_task

if TYPE_CHECKING:
    from sampa.lab.training.text import TextTask  # needs the extra nlp


@dataclass(frozen=True)
class Saved:
    """A checkpoint as a model.

    Attributes:
        checkpoint: Its name.
    """

    run: Run
    checkpoint: str
    task: ImageTask | TextTask
    model: nn.Module


def load_saved(
    path: Path,
    *,
    which: str | None = None,
    model_path: Path | None = None,
    data_dir: Path | None = None,
) -> Saved:
    """The model of a run's folder.

    Args:
        path: The folder.
        which: "best", "last", or None for the one that the run reports.
        model_path: Pretrained weights, if the run began from some.
        data_dir: Where data sets are.

    Raises:
        ValueError: If the folder holds no such model.
    """
    folder = RunFolder(path)
    run = with_trusted_weights(folder.run(), model_path)
    which = which or run.select
    kind = checkpoint.BEST if which == "best" else checkpoint.NEWEST
    found = checkpoint.newest(folder.checkpoints, kind, say, folder.owner())
    if found is None:
        raise ValueError(f"{path} has no {which} checkpoint that is whole")
    task = open_task(run, data_dir)
    model = build(run.model.name, **run.model.options, **task.model_options())
    model.load_state_dict(found.state["model"])
    return Saved(run, found.path.name, task, model)
