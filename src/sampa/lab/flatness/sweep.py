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
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sampa.lab.children import of_this_process
from sampa.lab.files import read_json, replace_file
from sampa.lab.flatness.kinds import MEASURES
from sampa.lab.flatness.measures import MEASURED_BY
from sampa.lab.flatness.settings import SweepSettings
from sampa.lab.flatness.subjects import Opened, Subject
from sampa.lab.progress import Bar
from sampa.lab.training.fields import read_fields
from sampa.lab.training.session import on_stop

PART = "SAMPA_FLATNESS_PART"  # in the environment of a process: its number of those that share, 0/2


@dataclass(frozen=True)
class MeasuredValues:
    """What came out of a measurement, as its file has it.

    Attributes:
        key: Of the weights and settings that it is a function of.
        subject: The name of the measurement.
        values: One number for each batch, or a picture's lists.
        gradients: What it cost, in gradients over all samples.
    """

    key: str
    measure: str
    subject: str
    values: Any
    gradients: float


@dataclass(frozen=True)
class Measurement:
    """One measure of one subject, or between several.

    Attributes:
        key: Of the weights and settings that its result is a function of.
        file: Of its result.
        others: The further models that a line or plane goes through.
        labels: What all of them are called there; empty for a measure of one.
    """

    subject: Subject
    measure: str
    key: str
    file: Path
    others: tuple[Subject, ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of its result among those of a measure."""
        return " → ".join(s.name for s in (self.subject, *self.others))

    def result(self) -> MeasuredValues | None:
        """What came out, None if it is not done with these settings and weights."""
        if not self.file.exists():
            return None
        found = read_json(self.file)
        if not isinstance(found, dict) or found.get("key") != self.key:
            return None
        return read_fields(MeasuredValues, found, str(self.file))


def jobs_of(
    subjects: Sequence[Subject], measures: Sequence[str], settings: SweepSettings, out: Path
) -> list[Measurement]:
    """All jobs, those of a subject next to each other."""
    found: list[Measurement] = []
    for recipe in dict.fromkeys(s.recipe for s in subjects):
        own = [s for s in subjects if s.recipe == recipe]
        first = {s.method: s for s in reversed(own)}
        shown = [first[method] for method in dict.fromkeys(s.method for s in own)]
        ends = shown if len(shown) > 1 else own
        for subject in own:
            for name in measures:
                of = MEASURES[name].of
                if of == "each" or (of == "first" and subject in shown):
                    found.append(_job((subject,), name, settings, out))
            if subject is ends[0]:
                groups = _between(ends, measures)
                found += [_job(group, name, settings, out) for name, group in groups]
    return found


def _between(
    ends: Sequence[Subject], measures: Sequence[str]
) -> Iterator[tuple[str, tuple[Subject, ...]]]:
    """Lines from the first model to each other, and the plane through the first three.

    The three are of different methods where there are as many, whatever else tells models apart.
    """
    different = list({s.run.method: s for s in reversed(ends)}.values())[::-1]
    corners = different if len(different) >= 3 else ends
    for name in measures:
        if MEASURES[name].of == "pairs":
            yield from ((name, (ends[0], other)) for other in ends[1:])
        elif MEASURES[name].of == "triple" and len(corners) >= 3:
            yield name, tuple(corners[:3])


def _job(group: Sequence[Subject], measure: str, settings: SweepSettings, out: Path) -> Measurement:
    one_method = len({s.method for s in group}) < len(group)
    labels = tuple(f"seed {s.seed}" if one_method else s.method for s in group)
    about = {
        "subjects": [s.identity for s in group],
        "labels": labels if len(group) > 1 else (),
        "measure": measure,
        "settings": asdict(settings),
    }
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
    file = out / "jobs" / f"{measure}-{key}.json"
    return Measurement(group[0], measure, key, file, tuple(group[1:]), labels)


class Worker:
    """Carries out jobs one after the other; a model stays loaded while its jobs last."""

    def __init__(self, settings: SweepSettings, data_dir: Path | None) -> None:
        self._settings, self._data_dir = settings, data_dir
        self._opened: tuple[str, Opened] | None = None

    def run(self, job: Measurement) -> None:
        """Measure, and write the result; whole or not at all."""
        s = self._settings
        if self._opened is None or self._opened[0] != job.subject.name:
            self._opened = None  # before the next one is loaded
            opened = job.subject.open(self._data_dir, s.batch_size, s.batches)
            self._opened = job.subject.name, opened
        opened = self._opened[1]
        if job.others:
            loaded = (other.load(self._data_dir)[1].state_dict() for other in job.others)
            states = (opened.model.state_dict(), *loaded)
            opened = replace(opened, ends=dict(zip(job.labels, states, strict=True)))
        values, gradients = MEASURED_BY[job.measure](opened, s)
        found = MeasuredValues(job.key, job.measure, job.name, values, gradients)
        job.file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(job.file, (json.dumps(asdict(found)) + "\n").encode())


def work(jobs: Sequence[Measurement], settings: SweepSettings, data_dir: Path | None) -> None:
    """Carry out in this process what is not done yet."""
    worker = Worker(settings, data_dir)
    with Bar("flatness", len(jobs), shown=PART not in os.environ) as bar:
        for job in jobs:
            bar.describe(f"{job.measure}, {job.name}")
            if job.result() is None:
                worker.run(job)
            bar.advance()


def share(jobs: Sequence[Measurement], part: int, parts: int) -> list[Measurement]:
    """The jobs of one of several processes: whole subjects, so that each is loaded once."""
    names = list(dict.fromkeys(job.subject.name for job in jobs))
    own = set(names[part::parts]) if len(names) >= parts else None
    if own is None:
        return list(jobs[part::parts])
    return [job for job in jobs if job.subject.name in own]


def work_together(jobs: Sequence[Measurement], places: Sequence[dict[str, str]]) -> int:
    """Carry out the jobs in a process for each place, with this command.

    Returns:
        128 and the signal that stopped them, as a shell counts; else the worst of their exit codes.
    """
    parts = len(places)
    command = [sys.executable, "-m", "sampa", *sys.argv[1:]]
    running: list[subprocess.Popen[Any]] = []

    asked: list[int] = []

    def stop(number: int, _frame: Any) -> None:
        asked.append(number)
        for process in running:
            process.terminate()

    with on_stop(stop), Bar(f"flatness, {parts} processes", len(jobs)) as bar:
        for part in range(parts):
            own = {**places[part], PART: f"{part}/{parts}"}
            environment = of_this_process({**os.environ, **own})
            # In a session of its own, a process hears of Ctrl-C from us alone.
            options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "start_new_session": True}
            running.append(subprocess.Popen(command, env=environment, **options))
        done = 0
        while any(process.poll() is None for process in running):
            before, done = done, sum(job.file.exists() for job in jobs)
            if done > before:
                bar.advance(done - before)
            time.sleep(0.2)
    if asked and any(process.returncode for process in running):
        return 128 + asked[0]
    return max((abs(process.returncode or 0) for process in running), default=0)
