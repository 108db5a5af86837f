"""The folder of a run: what was asked for, under which conditions, and what came out.

run.json       the run, all hyper-parameters, commit, versions, machine
metrics.jsonl  one line an epoch: the same bits however often the run is interrupted
times.jsonl    one line an epoch: how long it took, and the share of it spent waiting for data
result.json    the outcome; there when the run is done
checkpoints/   see `checkpoint`
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any, TextIO

from sampa.lab.results.outcome import RunResult
from sampa.lab.training.conditions import conditions, drift, leaves
from sampa.lab.training.run import Run
from sampa.messages import require

Change = tuple[str, Any, Any]
"""A setting by its full name, as it was and as it is."""


class RunFolder:
    """Files of one run, written by the first rank alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self._metrics = path / "metrics.jsonl"
        self._unwritten: list[str] = []  # lines that a full disk did not take
        self._lock: TextIO | None = None

    def open(self, run: Run, *, resume: bool, allow_changes: bool = False) -> list[str]:
        """Claim the folder before any work is done.

        Args:
            run: What is to be done in it.
            resume: Whether to continue the run in this folder.
            allow_changes: Go on with other settings than the run began with.

        Returns:
            Warnings about what is not as it was when the run began.

        Raises:
            ValueError: If it holds another run, or this one and `resume` is not set.
            OSError: If it cannot be written, or another process is working in it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self._claim()
        saved = self.read("run.json")
        if saved is None or not self._has_work():
            self.write("run.json", {"run": run.as_json(), "conditions": conditions()})
            return []
        require("--out", str(self.path), resume, "a new folder, or pass --resume to go on with it")
        changes = _changes(self._run(saved), run)
        if changes and not allow_changes:
            raise ValueError(
                f"{self._refusal(changes)}; resume with the same settings, choose another --out, "
                "or go on with the new ones: --allow-changes"
            )
        if changes and (self.path / "result.json").exists():
            raise ValueError(f"{self._refusal(changes)}: that run is done; choose another --out")
        if changes:
            self.write("run.json", {"run": run.as_json(), "conditions": conditions()})
        told = [f"{name} is now {b!r}, the run began with {a!r}" for name, a, b in changes]
        return [*told, *drift(saved.get("conditions"), conditions())]

    def run(self) -> Run:
        """The run that was carried out here.

        Raises:
            ValueError: If the folder is not that of a run.
        """
        saved = self.read("run.json")
        require("the folder of a run", str(self.path), saved is not None, "one with a run.json")
        assert saved is not None
        return self._run(saved)

    def result(self) -> RunResult | None:
        """What came out of the run, None if it is not done.

        Raises:
            ValueError: If the file is damaged.
        """
        saved = self.read("result.json")
        try:
            return None if saved is None else RunResult(**saved)
        except TypeError as error:
            file = self.path / "result.json"
            raise ValueError(f"{file} must be as sampa wrote it: {error}") from error

    def result_of(self, run: Run) -> RunResult | None:
        """The result of a run that is done here, None if it is not.

        Raises:
            ValueError: If it is another run's.
        """
        result = self.result()
        changes = [] if result is None else _changes(self.run(), run)
        if changes:
            raise ValueError(f"{self._refusal(changes)}; choose another --out")
        return result

    def _run(self, saved: dict[str, Any]) -> Run:
        require(f"{self.path / 'run.json'}", sorted(saved), "run" in saved, "written by sampa")
        try:
            return Run.from_json(saved["run"])
        except ValueError as error:
            raise ValueError(f"{self.path / 'run.json'} is not usable: {error}") from error

    def _has_work(self) -> bool:
        """Whether something would be lost: a start that failed leaves no more than run.json."""
        kept = self.checkpoints.glob("*-*") if self.checkpoints.is_dir() else ()
        return any(kept) or (self.path / "result.json").exists()

    def _refusal(self, changes: list[Change]) -> str:
        name, before, now = changes[0]
        return f"{name} must be as in {self.path / 'run.json'}: {before!r}, got {now!r}"

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _claim(self) -> None:
        self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise OSError(
                f"another process is working in {self.path}; wait for it or choose another --out"
            ) from error

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the folder, None if it is not there.

        Raises:
            ValueError: If it is damaged.
        """
        file = self.path / name
        try:
            values = json.loads(file.read_text()) if file.exists() else None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{file} must be JSON, as sampa wrote it: {error}") from error
        if values is not None and not isinstance(values, dict):
            cause = TypeError(f"no JSON object but a {type(values).__name__}")
            raise ValueError(f"{file} must be as sampa wrote it, got {cause}") from cause
        return values

    def write(self, name: str, values: dict[str, Any]) -> None:
        """Write a JSON file, whole or not at all.

        Raises:
            OSError: If the disk did not take it; the old file is unchanged.
        """
        file, partial = self.path / name, self.path / f".{name}.partial"
        try:
            with partial.open("w") as handle:
                json.dump(values, handle, indent=2)
                handle.write("\n")
                handle.flush()
                os.fsync(handle.fileno())
            partial.rename(file)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise OSError(
                error.errno, f"{file} could not be written ({error.strerror}); make room and resume"
            ) from error

    # ---- metrics, one JSON object a line -----------------------------------------------------

    def append(self, line: dict[str, Any]) -> None:
        """Write a line; one that the disk does not take is kept and written with the next.

        Raises:
            OSError: If it was not written yet. The file has whole lines only.
        """
        self._unwritten.append(json.dumps(line) + "\n")
        self._write_lines()

    def _write_lines(self) -> None:
        while self._unwritten:
            size = self._metrics.stat().st_size if self._metrics.exists() else 0
            try:
                with self._metrics.open("a") as handle:
                    handle.write(self._unwritten[0])
            except OSError:
                if self._metrics.exists():
                    os.truncate(self._metrics, size)  # half a line may have been written
                raise
            del self._unwritten[0]

    def note_times(self, line: dict[str, Any]) -> None:
        """Write how long an epoch took: beside the metrics, which no clock may change."""
        with (self.path / "times.jsonl").open("a") as handle:
            handle.write(json.dumps(line) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        if not self._metrics.exists():
            return []
        try:
            return [json.loads(line) for line in self._metrics.read_text().splitlines()]
        except RecursionError as error:
            raise ValueError(f"{self._metrics} is nested too deeply") from error

    def metrics_size(self) -> int:
        """Bytes written so far, made safe on the disk; a checkpoint remembers it.

        Raises:
            OSError: If the disk is full: a checkpoint must not forget a line.
        """
        self._write_lines()
        if not self._metrics.exists():
            return 0
        with self._metrics.open("rb+") as handle:
            os.fsync(handle.fileno())
        return self._metrics.stat().st_size

    def cut_metrics(self, size: int) -> None:
        """Forget the lines written after a checkpoint: the resumed run writes them again."""
        if self._metrics.exists():
            os.truncate(self._metrics, size)


def _changes(before: Run, now: Run) -> list[Change]:
    then, here = leaves(before.as_json()), leaves(now.as_json())
    names = [name for name in {**then, **here} if name != "about"]
    pairs = [(n, then.get(n, "nothing"), here.get(n, "nothing")) for n in names]
    return [(n, before, after) for n, before, after in pairs if before != after]
