"""Work in processes of its own: several at a time, stopped by signals after they saved."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


class Job(Protocol):
    """What one process does of a grid, a run most often; its text names it."""

    @property
    def folder(self) -> Path:
        """Where its log goes."""
        ...

    def is_done(self) -> bool:
        """Whether all its results are there.

        Raises:
            ValueError: If the run is not possible, or the folder holds another.
        """
        ...

    def arguments(self) -> list[str]:
        """Of Python, to carry it out or to go on with it."""
        ...


def threads_each(at_once: int, devices: int) -> list[str]:
    """The option that gives each process its share of the cores, unless the user set another."""
    if os.environ.get("OMP_NUM_THREADS"):
        return []
    return ["--threads", str(max(1, (os.cpu_count() or 1) // at_once // devices))]


@dataclass
class Jobs:
    """Runs at work.

    Attributes:
        asked: The signals that came.
        running: The processes at work.
    """

    asked: list[int] = field(default_factory=list)
    running: set[subprocess.Popen[bytes]] = field(default_factory=set)

    def carry_out_all(self, jobs: Sequence[Job], at_once: int) -> list[int]:
        """Do what is not done yet; the exit code of each."""
        done = [job.is_done() for job in jobs]  # finds what is wrong before anything runs
        with self._stopped_by_signals(), ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(self._carry_out, jobs, done))

    def _carry_out(self, job: Job, is_done: bool) -> int:
        """Do what a job lacks; the exit code, 0 if it is done."""
        if is_done or self.asked:
            print(f"{job}: {'done before' if is_done else 'left for the next time'}", flush=True)
            return 0
        command = [sys.executable, *job.arguments()]
        job.folder.mkdir(parents=True, exist_ok=True)
        log = job.folder / "log.txt"
        # In a session of its own, a run hears of Ctrl-C from us alone, and once.
        with (
            log.open("a") as file,
            subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True) as process,
        ):
            self.running.add(process)
            if self.asked:
                process.terminate()
            code = process.wait()
            self.running.discard(process)
        outcome = "stopped" if self.asked else f"failed ({code}), see {log}"
        print(f"{job}: {'done' if code == 0 else outcome}", flush=True)
        return code

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        def stop(number: int, _frame: Any) -> None:
            self.asked.append(number)
            for process in tuple(self.running):
                process.terminate()

        before = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
