"""The model that a run left behind, with its task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from sampa.lab.terminal import say
from sampa.lab.training import checkpoint
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.network import network_of
from sampa.lab.training.own import Named, as_named
from sampa.lab.training.run import Run
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
    named: Named | None = None,
    data_dir: Path | None = None,
) -> Saved:
    """The model of a run's folder.

    Args:
        path: The folder.
        which: "best", "last", or None for the one that the run reports.
        named: What the user names of it: its files are not trusted to name code or weights.
        data_dir: Where data sets are.

    Raises:
        ValueError: If the folder holds no such model.
    """
    folder = RunFolder(path)
    before = folder.run()
    run = as_named(before, named or Named())
    for role, source in run.sources.items():
        if source["sha256"] != before.sources.get(role, {}).get("sha256"):
            say(f"warning: the {role} in {source['path']} is not what the run was made with")
    which = which or run.select
    kind = checkpoint.BEST if which == "best" else checkpoint.NEWEST
    found = checkpoint.newest(folder.checkpoints, kind, say, folder.owner())
    if found is None:
        raise ValueError(f"{path} has no {which} checkpoint that is whole")
    task = open_task(run, data_dir)
    model = network_of(run, task.model_options(), data_dir)
    try:
        model.load_state_dict(found.state["model"])
    except RuntimeError as error:
        name = run.model.name
        raise ValueError(f"{found.path} has the weights of another network than {name}") from error
    return Saved(run, found.path.name, task, model)
