"""The folder of a run: what was asked for, under which conditions, and what came out.

run.json       the run, all hyper-parameters, commit, versions, machine
metrics.jsonl  one line an epoch
result.json    the outcome; there when the run is done
checkpoints/   see `checkpoint`
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

import torch

from sampa.checks import require
from sampa.train.run import Run


class RunFolder:
    """Files of one run, written by the first rank alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self._metrics = path / "metrics.jsonl"
        self._lock: TextIO | None = None

    def open(self, run: Run, *, resume: bool) -> list[str]:
        """Claim the folder before any work is done.

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
        self._require_same(_leaves(self._run(saved).as_json()), _leaves(run.as_json()))
        return _drift(saved.get("conditions", {}), conditions())

    def run(self) -> Run:
        """The run that was carried out here.

        Raises:
            ValueError: If the folder is not that of a run.
        """
        saved = self.read("run.json")
        require("the folder of a run", str(self.path), saved is not None, "one with a run.json")
        assert saved is not None
        return self._run(saved)

    def result_of(self, run: Run) -> dict[str, Any] | None:
        """The result of a run that is done here, None if it is not.

        Raises:
            ValueError: If it is another run's.
        """
        result = self.read("result.json")
        if result is not None:
            self._require_same(_leaves(self.run().as_json()), _leaves(run.as_json()))
        return result

    def _run(self, saved: dict[str, Any]) -> Run:
        require(f"{self.path / 'run.json'}", sorted(saved), "run" in saved, "written by sampa")
        return Run.from_json(saved["run"])

    def _has_work(self) -> bool:
        """Whether something would be lost: a start that failed leaves no more than run.json."""
        kept = self.checkpoints.glob("*-*") if self.checkpoints.is_dir() else ()
        return any(kept) or (self.path / "result.json").exists()

    def _require_same(self, before: dict[str, Any], now: dict[str, Any]) -> None:
        changed = [k for k in {**before, **now} if before.get(k) != now.get(k) and k != "about"]
        if changed:
            name = changed[0]
            raise ValueError(
                f"{name} must be as in {self.path / 'run.json'}: {before.get(name)!r}, got "
                f"{now.get(name)!r}; resume with the same settings or choose another --out"
            )

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
            return json.loads(file.read_text()) if file.exists() else None
        except ValueError as error:
            raise ValueError(f"{file} must be JSON, as sampa wrote it: {error}") from error

    def write(self, name: str, values: dict[str, Any]) -> None:
        """Write a JSON file, whole or not at all."""
        file, partial = self.path / name, self.path / f".{name}.partial"
        with partial.open("w") as handle:
            json.dump(values, handle, indent=2)
            handle.write("\n")
            handle.flush()
            os.fsync(handle.fileno())
        partial.rename(file)

    # ---- metrics, one JSON object a line -----------------------------------------------------

    def append(self, line: dict[str, Any]) -> None:
        with self._metrics.open("a") as handle:
            handle.write(json.dumps(line) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        if not self._metrics.exists():
            return []
        return [json.loads(line) for line in self._metrics.read_text().splitlines()]

    def metrics_size(self) -> int:
        """Bytes written so far, made safe on the disk; a checkpoint remembers it."""
        if not self._metrics.exists():
            return 0
        with self._metrics.open("rb+") as handle:
            os.fsync(handle.fileno())
        return self._metrics.stat().st_size

    def cut_metrics(self, size: int) -> None:
        """Forget the lines written after a checkpoint: the resumed run writes them again."""
        if self._metrics.exists():
            os.truncate(self._metrics, size)


def conditions() -> dict[str, Any]:
    """Under what a result was obtained: commit, versions, machine."""
    return {
        "commit": commit(),
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("sampa", "torch", "numpy")},
        },
        "machine": {
            "system": platform.system(),
            "processor": processor(),
            "cores": os.cpu_count(),
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        },
        "threads": torch.get_num_threads(),
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
    }


def _leaves(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their full names, such as base.lr."""
    leaves: dict[str, Any] = {}
    for name, value in values.items():
        deeper = isinstance(value, dict)
        leaves |= _leaves(value, f"{prefix}{name}.") if deeper else {f"{prefix}{name}": value}
    return leaves


def _drift(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs now and may change the last bits of a result."""
    then, here = _leaves(before), _leaves(now)
    names = ("threads", "versions.torch", "machine.processor", "machine.device")
    return [
        f"{name} is {here.get(name)!r}, the run began with {then.get(name)!r}: the result may "
        "differ from that of an uninterrupted run in the last bits"
        for name in names
        if here.get(name) != then.get(name)
    ]


def commit() -> str | None:
    """The commit of the source that runs, with a mark if it was changed; None outside a clone."""
    here = Path(__file__).parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
