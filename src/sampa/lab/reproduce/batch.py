"""Several runs one after the other in one process: starting it takes as long as a short run."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sampa.lab.reproduce.plan import Request
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.jobs import threads_each
from sampa.lab.training.launch import set_up_process
from sampa.lab.training.loop import train
from sampa.lab.training.method import checked_method
from sampa.lab.training.run import Run, read_run
from sampa.lab.training.session import Interrupted, Settings


@dataclass(frozen=True)
class Batch:
    """Runs for one process, which are started again as one if they are stopped.

    Attributes:
        name: What they have in common.
        runs: By their folders.
        folder: For the log.
    """

    name: str
    runs: dict[Path, Run]
    folder: Path
    request: Request

    def __str__(self) -> str:
        return f"{self.name} ({len(self.runs)} run{'s' if len(self.runs) > 1 else ''})"

    def is_done(self) -> bool:
        for run in self.runs.values():
            checked_method(run)
        return all(RunFolder(path).result_of(run) is not None for path, run in self.runs.items())

    def arguments(self) -> list[str]:
        """Runs on several devices have a launcher each, and thus a process."""
        request = self.request
        files = [str(_ask(run, path)) for path, run in self.runs.items()]
        data = [] if request.data_dir is None else ["--data-dir", str(request.data_dir)]
        if request.devices == 1:
            return ["-m", "sampa.lab.reproduce.batch", *data, *files]
        (file,) = files
        return [
            *("-m", "sampa", "train", file, "--out", str(Path(file).parent), "--resume"),
            *("--devices", str(request.devices), *threads_each(request.jobs, request.devices)),
            *data,
        ]


def _ask(run: Run, folder: Path) -> Path:
    """Write down what is asked of a folder, for the process that will do it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "asked.json"
    file.write_text(json.dumps({"run": run.as_json()}))
    return file


def main(arguments: Sequence[str]) -> int:
    """Carry out runs, each in the folder of its file; a failed one does not keep others back."""
    data_dir = None
    if arguments[0] == "--data-dir":
        data_dir, arguments = Path(arguments[1]), arguments[2:]
    set_up_process(1)
    code = 0
    for file in map(Path, arguments):
        try:
            train(read_run(file), file.parent, Settings(data_dir=data_dir, resume=True))
        except Interrupted as stopped:
            print(f"{file.parent}: {stopped}")
            return 128 + stopped.signal_number
        except Exception:  # whatever it was, it is in the log, and the others may be well
            traceback.print_exc()
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
