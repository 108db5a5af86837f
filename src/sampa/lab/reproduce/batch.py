"""Several runs one after the other in one process: starting it takes as long as a short run."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from sampa.lab.children import follow_parent
from sampa.lab.files import replace_file
from sampa.lab.reproduce.request import Request
from sampa.lab.terminal import say
from sampa.lab.training.jobs import Job, threads_each
from sampa.lab.training.launch import set_up_process
from sampa.lab.training.loop import train
from sampa.lab.training.run import Run, read_run
from sampa.lab.training.session import Interrupted, Settings


def job_of(name: str, runs: dict[Path, Run], request: Request, at_once: int) -> Job:
    """A process for some runs; one on several devices has a launcher, and thus a process."""
    data = [] if request.data_dir is None else ["--data-dir", str(request.data_dir)]

    def arguments() -> list[str]:
        files = [str(_ask(run, path)) for path, run in runs.items()]
        if request.devices == 1:
            return ["-m", "sampa.lab.reproduce.batch", *data, *files]
        (file,) = files
        return [
            *("-m", "sampa", "train", file, "--out", str(Path(file).parent), "--resume"),
            *("--devices", str(request.devices), *threads_each(at_once, request.devices)),
            *data,
        ]

    return Job(f"{name} ({len(runs)} run{'s' if len(runs) > 1 else ''})", runs, arguments)


def _ask(run: Run, folder: Path) -> Path:
    """Write down what is asked of a folder, for the process that will do it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "asked.json"
    replace_file(file, json.dumps({"run": run.as_json()}).encode())
    return file


def main(arguments: Sequence[str]) -> int:
    """Carry out runs, each in the folder of its file; a failed one does not keep others back."""
    follow_parent()
    data_dir = None
    if arguments[0] == "--data-dir":
        data_dir, arguments = Path(arguments[1]), arguments[2:]
    set_up_process(1)
    code = 0
    for file in map(Path, arguments):
        try:
            train(read_run(file), file.parent, Settings(data_dir=data_dir, resume=True))
        except Interrupted as stopped:
            say(f"{file.parent}: {stopped}")
            return 128 + stopped.signal_number
        except Exception:  # whatever it was, it is in the log, and the others may be well
            say(traceback.format_exc(), file=sys.stderr, end="")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
