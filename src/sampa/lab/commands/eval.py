"""`sampa eval`: judge a run's model again."""

from __future__ import annotations

from sampa.lab.commands.arguments import EvalArguments
from sampa.lab.devices import find_device
from sampa.lab.models import build
from sampa.lab.terminal import say
from sampa.lab.training import checkpoint
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.launch import set_up_process
from sampa.lab.training.run import with_trusted_weights
from sampa.lab.training.tasks import open_task


def main(arguments: EvalArguments) -> int:
    set_up_process()
    folder = RunFolder(arguments.run_folder)
    run = with_trusted_weights(folder.run(), arguments.model_path)
    which, split = arguments.which or run.select, arguments.split
    kind = checkpoint.BEST if which == "best" else checkpoint.NEWEST
    found = checkpoint.newest(folder.checkpoints, kind, say, folder.owner())
    if found is None:
        raise ValueError(f"{arguments.run_folder} has no {which} checkpoint that is whole")
    task = open_task(run, arguments.data_dir)
    model = build(run.model.name, **run.model.options, **task.model_options())
    model.load_state_dict(found.state["model"])
    scores = task.evaluate(model.to(find_device()).eval(), split)
    text = ", ".join(f"{name} {value:.2f}" for name, value in scores.items())
    say(f"{run.name} {run.method} seed {run.seed}, {found.path.name}: {split} {text}")
    return 0
