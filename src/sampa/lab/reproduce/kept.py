"""Finished runs in a file that is committed: a grid goes on from it alone, on another machine.

Runs of one table may come from several commits as long as the numerics are the same
(`conditions.NUMERICS`); older ones are made anew.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sampa.lab.conditions import NUMERICS
from sampa.lab.files import place_below, read_json_lines, replace_file
from sampa.lab.terminal import say
from sampa.lab.training.folder import RunFolder

SECONDS = 10.0  # between looks for runs that were finished


@dataclass
class KeptRuns:
    """The finished runs below a folder, one line each: run, conditions, metrics and result.

    Attributes:
        folder: Where they are made.
        file: Where they are kept.
    """

    folder: Path
    file: Path

    def __post_init__(self) -> None:
        self._finished: list[Path] = []

    def restore(self) -> None:
        """Put back the folders of runs that the file holds, but for their checkpoints.

        Raises:
            ValueError: If the file is not as sampa wrote it.
        """
        lines = read_json_lines(self.file) if self.file.exists() else []
        current = [line for line in lines if numerics_of(line) == NUMERICS]
        if len(current) < len(lines):
            say(f"{self.file}: {len(lines) - len(current)} runs of other numerics are made anew")
        for line in current:
            self._restore(line)

    def _restore(self, line: dict[str, Any]) -> None:
        folder = place_below(self.folder, line["place"], f"place in {self.file}")
        if (folder / "result.json").exists():
            return
        folder.mkdir(parents=True, exist_ok=True)
        metrics = [{"run_id": line.get("id", "")}, *line["metrics"]]
        self._write(folder / "run.json", {name: line[name] for name in RUN if name in line})
        replace_file(
            folder / "metrics.jsonl", "".join(f"{json.dumps(m)}\n" for m in metrics).encode()
        )
        self._write(folder / "result.json", line["result"])

    def _write(self, file: Path, values: dict[str, Any]) -> None:
        replace_file(file, f"{json.dumps(values, indent=2)}\n".encode())

    def save(self) -> None:
        """Write the file anew if a run was finished since."""
        found = sorted(self.folder.rglob("result.json"))
        if found == self._finished:
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.file, "".join(map(self._line, found)).encode())
        self._finished = found

    def _line(self, result: Path) -> str:
        run = RunFolder(result.parent)
        place = result.parent.relative_to(self.folder).as_posix()
        saved = run.read("run.json") or {}
        line = {"place": place, **saved, "metrics": run.metrics(), "result": run.read(result.name)}
        return json.dumps(line) + "\n"

    @contextmanager
    def growing(self) -> Iterator[None]:
        """Save each run soon after it is finished inside the block, and all at its end."""
        is_over = threading.Event()

        def watch() -> None:
            while not is_over.wait(SECONDS):
                self.save()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            is_over.set()
            watcher.join()
            self.save()


RUN = ("id", "run", "conditions")  # what run.json has


def numerics_of(line: dict[str, Any]) -> int:
    """The numerics that a run was made with; the first ones were not written down."""
    return line.get("conditions", {}).get("numerics", 1)
