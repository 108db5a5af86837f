"""`sampa eval`: judge a run's model again."""

from __future__ import annotations

from sampa.lab.commands.arguments import EvalArguments
from sampa.lab.devices import find_device
from sampa.lab.terminal import say
from sampa.lab.training.launch import set_up_process
from sampa.lab.training.own import Named
from sampa.lab.training.saved import load_saved


def main(arguments: EvalArguments) -> int:
    set_up_process()
    saved = load_saved(
        arguments.run_folder,
        which=arguments.which,
        named=Named(arguments.data, arguments.model, arguments.model_path),
        data_dir=arguments.data_dir,
    )
    scores = saved.task.evaluate(saved.model.to(find_device()).eval(), arguments.split)
    text = ", ".join(f"{name} {value:.2f}" for name, value in scores.items())
    run = saved.run
    say(f"{run.name} {run.method} seed {run.seed}, {saved.checkpoint}: {arguments.split} {text}")
    return 0
