"""Work in processes of its own: several at a time, stopped by signals after they saved."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import FileIO
from itertools import compress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from sampa.lab.children import of_this_process
from sampa.lab.files import open_to_write
from sampa.lab.progress import Bar
from sampa.lab.terminal import say
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.method import branches_of, checked_method
from sampa.lab.training.run import Run
from sampa.lab.training.session import on_stop
from sampa.messages import wrong_usage


@dataclass(frozen=True)
class Job:
    """The runs of one process, which are started again as one if they are stopped.

    Attributes:
        name: What they have in common.
        runs: By their folders; the log is in the first.
        arguments: Gives the arguments of Python that start it or go on with it.
        settled_by_divergence: Whether a run that diverged is done, though it has no result.
    """

    name: str
    runs: dict[Path, Run]
    arguments: Callable[[], list[str]]
    settled_by_divergence: bool = False

    def is_done(self, devices: int = 1) -> bool:
        """Whether there is nothing more to do for any of its runs.

        Raises:
            WrongUsage: If a run is not possible, or not on that many devices.
            ValueError: If its folder holds another.
        """
        for run in self.runs.values():
            with wrong_usage():
                branches_of(run, checked_method(run), devices)
        return all(
            RunFolder(path).result_of(run) is not None
            or (self.settled_by_divergence and RunFolder(path).divergence_of(run) is not None)
            for path, run in self.runs.items()
        )

    def has_diverged(self) -> bool:
        """Whether one of its runs has."""
        return any(RunFolder(path).divergence_of(run) for path, run in self.runs.items())


def threads_each(at_once: int, devices: int) -> list[str]:
    """The option that gives each process its share of the cores, unless the user set another."""
    if os.environ.get("OMP_NUM_THREADS"):
        return []
    return ["--threads", str(max(1, (os.cpu_count() or 1) // at_once // devices))]


def as_many_as_fit(devices: int) -> int:
    """How many runs fit if each process of them has a GPU, or else a core, of its own."""
    return max(1, (torch.cuda.device_count() or os.cpu_count() or 1) // devices)


def gpus_each(at_once: int, devices: int) -> list[dict[str, str]]:
    """For each of the runs at work: the environment that shows it GPUs of its own.

    If there are too few, some runs share them. Nothing is hidden from a single run, and nothing is
    set on a machine without GPUs.
    """
    count = torch.cuda.device_count()
    if at_once == 1 or count == 0:
        return [{}] * at_once
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = given.split(",")[:count] if given else [str(i) for i in range(count)]
    parts = [gpus[i : i + devices] for i in range(0, count - devices + 1, devices)] or [gpus]
    return [{"CUDA_VISIBLE_DEVICES": ",".join(parts[i % len(parts)])} for i in range(at_once)]


@dataclass
class Jobs:
    """Runs at work.

    Attributes:
        asked: The signals that came.
        running: The processes at work.
        free: The GPUs that wait for a run, as its environment.
        bar: How far they are.
    """

    asked: list[int] = field(default_factory=list)
    running: set[subprocess.Popen[Any]] = field(default_factory=set)
    free: SimpleQueue[dict[str, str]] = field(default_factory=SimpleQueue)
    bar: Bar = field(default_factory=lambda: Bar("jobs", 0, shown=False))

    def run_all(self, jobs: Sequence[Job], at_once: int, devices: int = 1) -> list[int]:
        """Run the jobs that are not done yet, `at_once` at a time; the exit code of each.

        Args:
            jobs: All of them.
            at_once: How many at the same time.
            devices: Processes of each.
        """
        done = [job.is_done(devices) for job in jobs]  # finds what is wrong before anything runs
        for places in gpus_each(at_once, devices):
            self.free.put(places)
        with (
            Bar("jobs", len(jobs)) as self.bar,
            on_stop(self._stop),
            ThreadPoolExecutor(at_once) as pool,
        ):
            for job in compress(jobs, done):  # in their order, before any other is told
                self.bar.advance()
                say(f"{job.name}: {'diverged' if job.has_diverged() else 'done'} before")
            open_ones = [job for job, is_done in zip(jobs, done, strict=True) if not is_done]
            codes = pool.map(self._run_job, open_ones)
            return [0 if is_done else next(codes) for is_done in done]

    def _run_job(self, job: Job) -> int:
        """Run a job; the exit code."""
        if self.asked:  # the last line says how to go on
            return 0
        log = next(iter(job.runs)) / "log.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        places = self.free.get()
        try:
            with open_to_write(log, append=True) as file:
                code = self._wait_for(
                    job.arguments(), of_this_process({**os.environ, **places}), file
                )
        finally:
            self.free.put(places)
        if code == 0 or not self.asked:  # of those that were stopped, the last line tells
            self.bar.advance()
            failed = "diverged" if job.has_diverged() else f"failed ({code}), see {log}"
            say(f"{job.name}: {failed if code else 'done'}")
        return code

    def _wait_for(self, arguments: list[str], environment: dict[str, str], log: FileIO) -> int:
        """Start a process and wait for it; the exit code."""
        # In a session of its own, a run hears of Ctrl-C from us alone, and once.
        options: dict[str, Any] = {"stdout": log, "stderr": log, "start_new_session": True}
        with subprocess.Popen([sys.executable, *arguments], env=environment, **options) as process:
            self.running.add(process)
            if self.asked:
                process.terminate()
            code = process.wait()
            self.running.discard(process)
        return code

    def _stop(self, number: int, _frame: Any) -> None:
        self.asked.append(number)
        for process in tuple(self.running):
            process.terminate()
