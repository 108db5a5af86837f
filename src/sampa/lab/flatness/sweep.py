"""A sweep: every measure of every subject is a job, whose result is a file.

A job is a function of its subject and the settings alone. So jobs that are done are not repeated,
and processes that share them get the bits of a single one.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sampa.lab.children import of_this_process
from sampa.lab.files import read_json, replace_file
from sampa.lab.flatness.measures import MEASURES
from sampa.lab.flatness.settings import Settings
from sampa.lab.flatness.subjects import Opened, Subject
from sampa.lab.terminal import harmless
from sampa.lab.training.session import on_stop

PART = "SAMPA_FLATNESS_PART"  # in the environment of a process: its number among those that share


@dataclass(frozen=True)
class Job:
    """One measure of one subject.

    Attributes:
        file: Of its result.
    """

    subject: Subject
    measure: str
    key: str
    file: Path

    def result(self) -> dict[str, Any] | None:
        """What came out, None if it is not done with these settings and weights."""
        if not self.file.exists():
            return None
        found = read_json(self.file)
        return found if isinstance(found, dict) and found.get("key") == self.key else None


def jobs_of(
    subjects: Sequence[Subject], measures: Sequence[str], settings: Settings, out: Path
) -> list[Job]:
    """All jobs, those of a subject next to each other."""
    return [_job(subject, name, settings, out) for subject in subjects for name in measures]


def _job(subject: Subject, measure: str, settings: Settings, out: Path) -> Job:
    about = {"subject": subject.as_json(), "measure": measure, "settings": asdict(settings)}
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
    return Job(subject, measure, key, out / "jobs" / f"{measure}-{key}.json")


class Worker:
    """Carries out jobs one after the other; a model stays loaded while its jobs last."""

    def __init__(self, settings: Settings, data_dir: Path | None) -> None:
        self._settings, self._data_dir = settings, data_dir
        self._opened: tuple[str, Opened] | None = None

    def run(self, job: Job) -> None:
        """Measure, and write the result; whole or not at all."""
        s = self._settings
        if self._opened is None or self._opened[0] != job.subject.name:
            self._opened = None  # before the next one is loaded
            opened = job.subject.open(self._data_dir, s.batch_size, s.batches)
            self._opened = job.subject.name, opened
        values, gradients = MEASURES[job.measure].measure(self._opened[1], s)
        found = {"key": job.key, "measure": job.measure, "subject": job.subject.name}
        content = {**found, "values": values, "gradients": gradients}
        job.file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(job.file, (json.dumps(content) + "\n").encode())


def progress() -> Progress:
    """A bar on a terminal, nothing elsewhere."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


def work(jobs: Sequence[Job], settings: Settings, data_dir: Path | None) -> None:
    """Carry out in this process what is not done yet."""
    worker = Worker(settings, data_dir)
    with progress() as bar:
        task = bar.add_task("flatness", total=len(jobs))
        for job in jobs:
            bar.update(task, description=harmless(f"{job.subject.name}: {job.measure}"))
            if job.result() is None:
                worker.run(job)
            bar.advance(task)


def share(jobs: Sequence[Job], part: int, parts: int) -> list[Job]:
    """The jobs of one of several processes: whole subjects, so that each is loaded once."""
    names = list(dict.fromkeys(job.subject.name for job in jobs))
    own = set(names[part::parts]) if len(names) >= parts else None
    if own is None:
        return list(jobs[part::parts])
    return [job for job in jobs if job.subject.name in own]


def work_together(jobs: Sequence[Job], parts: int, places: Sequence[dict[str, str]]) -> int:
    """Carry out the jobs in processes of their own, with this command; the worst exit code."""
    command = [sys.executable, "-m", "sampa", *sys.argv[1:]]
    running: list[subprocess.Popen[Any]] = []

    def stop(_number: int, _frame: Any) -> None:
        for process in running:
            process.terminate()

    with on_stop(stop), progress() as bar:
        for part in range(parts):
            environment = of_this_process({**os.environ, **places[part], PART: str(part)})
            running.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
        task = bar.add_task(f"flatness on {parts} processes", total=len(jobs))
        while any(process.poll() is None for process in running):
            bar.update(task, completed=sum(job.file.exists() for job in jobs))
            time.sleep(0.2)
    return max((abs(process.returncode or 0) for process in running), default=0)
