"""The folder of a run: what was asked for, under which conditions, and what came out.

run.json       the run's random id, the run, all hyper-parameters, commit, versions, machine
metrics.jsonl  the id, then one line an epoch: the same bits however often the run is interrupted
times.jsonl    one line an epoch: how long it took, and the share of it spent waiting for data
result.json    the outcome; exists when the run is done
diverged.json  why there will be none: the loss left all bounds; gone when the run is begun again
checkpoints/   see `checkpoint`; each has the id

A folder may be removed, and another run started in its place, while a run is working in it. The id
and the lock tell: they are compared before anything gets its name here, and the run ends.
"""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from sampa.lab.conditions import Conditions, leaves
from sampa.lab.files import append_whole, open_to_write, read_json, read_json_lines, replace_file
from sampa.lab.results.outcome import RunResult
from sampa.lab.training.claim import Claim, FolderReplaced, Owner
from sampa.lab.training.run import Run
from sampa.messages import require, wrong_usage

HEADER_BYTES = 47  # the line with the id, at the top of metrics.jsonl
DIVERGED = "diverged.json"

EpochLine = dict[str, float | None]
"""The numbers of an epoch by name, its own among them; None where a method does not tell one."""

Change = tuple[str, Any, Any]
"""A setting by its full name, as it was and as it is."""


class RunFolder:
    """Files of one run, written by the first rank alone.

    Attributes:
        id: Of the run that is carried out here; empty before `open`, and on other ranks.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = ""
        self.checkpoints = path / "checkpoints"
        self._metrics = path / "metrics.jsonl"
        self._unwritten: list[str] = []  # lines that a full disk did not take
        self._claim: Claim | None = None

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
        self._claim = Claim(self.path)
        self._refuse_links()
        saved = self.read("run.json")
        if not self._has_work():
            self._begin(run)
            return []
        if saved is None:
            raise ValueError(
                f"{self.path} has checkpoints, metrics or a result but no run.json that says whose "
                "they are: put it back, remove them, or choose another --out"
            )
        require("--out", str(self.path), resume, "a new folder, or pass --resume to go on with it")
        changes = _changes(self._run(saved), run)
        if changes and not allow_changes:
            raise ValueError(
                f"{self._refusal(changes)}; resume with the same settings, choose another --out, "
                "or go on with the new ones: --allow-changes"
            )
        if changes and (self.path / "result.json").exists():
            raise ValueError(f"{self._refusal(changes)}: that run is done; choose another --out")
        self.id = self._saved_id(saved)
        if changes:
            self._write_run(run, self.id, self.conditions())
        self._forget_divergence()
        told = [f"{name} is now {b!r}, the run began with {a!r}" for name, a, b in changes]
        return [*told, *self.conditions().drift(Conditions.now())]

    def _begin(self, run: Run) -> None:
        """A new run: what a start that failed has left is of no use."""
        new = secrets.token_hex(16)
        self._write_run(run, new, Conditions.now())
        self.id = new
        self._forget_divergence()
        replace_file(self._metrics, self._header(), self.require_own)

    def note_conditions(self) -> None:
        """Note that a run that has no result yet goes on under the present conditions.

        Its result must not pass for one of the source, or the machine, that it began with.
        """
        if (self.path / "result.json").exists():
            return
        before = self.conditions()
        found = Conditions.merged([before, Conditions.now()])
        if found != before:
            saved = self.read("run.json") or {}
            self.write("run.json", {**saved, "conditions": found.values})

    def _write_run(self, run: Run, name: str, found: Conditions) -> None:
        self.write("run.json", {"id": name, "run": run.as_json(), "conditions": found.values})

    def _saved_id(self, saved: dict[str, Any]) -> str:
        known = isinstance(saved.get("id"), str) and saved["id"] != ""
        if not known and not (self.path / "result.json").exists():
            raise ValueError(
                f"{self.path / 'run.json'} must have the id of its run, got {saved.get('id')!r}: "
                "go on with the version of sampa that began it, or choose another --out"
            )
        return saved["id"] if known else ""

    def _refuse_links(self) -> None:
        """What is written in folders here must stay here."""
        for folder in (self.checkpoints, self.path / "tensorboard"):
            rule = "a folder and not a symbolic link: have --out itself where there is room"
            require(str(folder), "a symbolic link", not folder.is_symlink(), rule)

    def require_own(self) -> None:
        """Make sure that this is still the folder that was opened, if it was.

        Raises:
            FolderReplaced: If it was removed, or holds another run.
        """
        if self._claim is None:
            return
        self._claim.require_held()
        found = (self.read("run.json") or {}).get("id") if self.id else ""
        if found != self.id:
            raise FolderReplaced(self.path, "its run.json is another run's")

    def owner(self) -> Owner:
        """Whose the checkpoints in a folder must be that is only read."""
        found = (self.read("run.json") or {}).get("id")
        return Owner(found if isinstance(found, str) else "")

    def run(self) -> Run:
        """The run that was carried out here.

        Raises:
            WrongUsage: If the folder is not that of a run.
        """
        saved = self.read("run.json")
        with wrong_usage():
            require("the folder of a run", str(self.path), saved is not None, "one with a run.json")
        assert saved is not None
        return self._run(saved)

    def conditions(self) -> Conditions:
        """Under what the run was carried out, as far as its file says."""
        found = (self.read("run.json") or {}).get("conditions")
        return Conditions(found if isinstance(found, dict) else {})

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

    def divergence_of(self, run: Run) -> str | None:
        """Why a run that diverged here has no result, None if it did not.

        Raises:
            ValueError: If the folder is another run's.
        """
        saved, found = self.read("run.json"), self.read(DIVERGED)
        if saved is None or found is None or found.get("id") != saved.get("id"):
            return None
        changes = _changes(self._run(saved), run)
        if changes:
            raise ValueError(f"{self._refusal(changes)}; choose another --out")
        return str(found.get("reason"))

    def note_divergence(self, reason: str) -> None:
        """Write down that the run which is carried out here has diverged, if the disk has room."""
        if self.id:
            with suppress(OSError):
                self.write(DIVERGED, {"id": self.id, "reason": reason})

    def _forget_divergence(self) -> None:
        (self.path / DIVERGED).unlink(missing_ok=True)

    def _run(self, saved: dict[str, Any]) -> Run:
        require(f"{self.path / 'run.json'}", sorted(saved), "run" in saved, "written by sampa")
        try:
            return Run.from_json(saved["run"])
        except ValueError as error:
            raise ValueError(f"{self.path / 'run.json'} is not usable: {error}") from error

    def _has_work(self) -> bool:
        """Whether something would be lost: a start that failed leaves run.json and a header."""
        kept = self.checkpoints.glob("*-*") if self.checkpoints.is_dir() else ()
        metrics = self._metrics
        is_written = metrics.is_file() and not metrics.is_symlink()
        has_lines = is_written and metrics.stat().st_size > HEADER_BYTES
        return any(kept) or has_lines or (self.path / "result.json").exists()

    def _refusal(self, changes: list[Change]) -> str:
        name, before, now = changes[0]
        return f"{name} must be as in {self.path / 'run.json'}: {before!r}, got {now!r}"

    def close(self) -> None:
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the folder, None if it does not exist.

        Raises:
            ValueError: If it is damaged; the cause is the reason without the path.
            OSError: If it cannot be read: it is no ordinary file, say.
        """
        file = self.path / name
        values = read_json(file) if os.path.lexists(file) else None
        if values is not None and not isinstance(values, dict):
            cause = TypeError(f"no JSON object but a {type(values).__name__}")
            raise ValueError(f"{file} must be as sampa wrote it, got {cause}") from cause
        return values

    def write(self, name: str, values: dict[str, Any]) -> None:
        """Write a JSON file, whole or not at all.

        Raises:
            OSError: If the disk did not take it; the old file is unchanged.
            FolderReplaced: If this is no longer the folder that was opened.
        """
        file = self.path / name
        self.require_own()
        try:
            replace_file(file, (json.dumps(values, indent=2) + "\n").encode(), self.require_own)
        except OSError as error:
            raise OSError(
                error.errno, f"{file} could not be written ({error.strerror}); make room and resume"
            ) from error

    # ---- metrics, one JSON object a line -----------------------------------------------------

    def _header(self) -> bytes:
        return f'{{"run_id": "{self.id}"}}\n'.encode() if self.id else b""

    def append(self, line: EpochLine) -> None:
        """Write a line; one that the disk does not take is kept and written with the next.

        Raises:
            OSError: If it was not written yet. The file has whole lines only.
            FolderReplaced: If this is no longer the folder that was opened.
        """
        self._unwritten.append(json.dumps(line) + "\n")
        self._write_lines()

    def _write_lines(self) -> None:
        while self._unwritten:
            self._append(self._metrics, self._unwritten[0].encode())
            del self._unwritten[0]

    def _append(self, file: Path, line: bytes) -> None:
        """Write a line at the end of a file, or nothing."""
        self.require_own()
        with open_to_write(file, append=True) as handle:
            self.require_own()  # what is open now is in our folder
            append_whole(handle, line)

    def note_times(self, line: EpochLine) -> None:
        """Write how long an epoch took: beside the metrics, which no clock may change."""
        self._append(self.path / "times.jsonl", (json.dumps(line) + "\n").encode())

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of all epochs.

        Raises:
            ValueError: If the file is damaged; the cause is the reason without the path.
            OSError: If it cannot be read.
        """
        lines = read_json_lines(self._metrics) if os.path.lexists(self._metrics) else []
        has_header = bool(lines) and isinstance(lines[0], dict) and set(lines[0]) == {"run_id"}
        return lines[1:] if has_header else lines

    def metrics_size(self) -> int:
        """Bytes written so far, made safe on the disk; a checkpoint remembers it.

        Raises:
            OSError: If the disk is full: a checkpoint must not forget a line.
        """
        self._write_lines()
        self.require_own()
        with open_to_write(self._metrics) as handle:
            os.fsync(handle.fileno())
            return os.fstat(handle.fileno()).st_size

    def cut_metrics(self, size: int = 0) -> str | None:
        """Forget the lines written after a checkpoint: the resumed run writes them again.

        Args:
            size: What the checkpoint remembers; 0 forgets all lines.

        Returns:
            What is missing, if the file has fewer lines than the checkpoint remembers.

        Raises:
            ValueError: If the file is another run's.
        """
        header = self._header()
        kept = max(size, len(header))
        with open_to_write(self._metrics) as handle:
            content = handle.read(kept)
            if content and not content.startswith(header):
                raise ValueError(
                    f"{self._metrics} must begin with the id of its run, {self.id}: put back the "
                    "file that belongs to run.json, or choose another --out"
                )
            if len(content) < kept:  # never longer: that would fill it with zeros
                kept = content.rfind(b"\n") + 1
            self.require_own()
            os.ftruncate(handle.fileno(), kept)
            if not kept:
                handle.seek(0)
                append_whole(handle, header)
        lost = size - max(kept, len(header))
        return f"{self._metrics} lacks {lost} bytes of the lines recorded" if lost > 0 else None


def _changes(before: Run, now: Run) -> list[Change]:
    then, here = leaves(before.as_json()), leaves(now.as_json())
    names = [name for name in {**then, **here} if name != "about" and not _is_place(name)]
    pairs = [(n, then.get(n, "nothing"), here.get(n, "nothing")) for n in names]
    return [(n, before, after) for n, before, after in pairs if before != after]


def _is_place(name: str) -> bool:
    """Where something of the user's own is; that it is the same, its hash says."""
    return name.startswith("sources.") and name.endswith(".path")
