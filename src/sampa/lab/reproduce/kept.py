"""Finished runs in a file that is committed: a grid goes on from it alone, on another machine.

Runs of one table may come from several commits as long as the numerics are the same
(`conditions.NUMERICS`); older ones are made anew, and so are those of another edition of the table.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from sampa.lab.files import place_below, read_json_lines, replace_file
from sampa.lab.reproduce.finished import (
    is_committed,
    line_of,
    settings_in,
    settings_of,
    why_not,
    write_finished,
)
from sampa.lab.terminal import say
from sampa.lab.training.run import Run

SECONDS = 10.0  # between looks for runs that were finished
UNPLANNED = "of another edition are left out"


@dataclass
class KeptRuns:
    """The finished runs below a folder, one line each: run, conditions, metrics and result.

    Attributes:
        folder: Where they are made.
        file: Where they are kept.
        planned: By their folders; no others are put back or kept.
        keeps_others: Whether lines of runs that are not planned stay in the file: a tuning is
            planned step by step. Those of other seeds stay in any case.
        processes: That make a run.
        allow_dirty: Whether runs of source that is not committed count.
    """

    folder: Path
    file: Path
    planned: Mapping[Path, Run]
    keeps_others: bool = False
    processes: int = 1
    allow_dirty: bool = False

    def __post_init__(self) -> None:
        self._finished: list[Path] = []
        self._others: list[dict[str, Any]] = []

    def restore(self) -> None:
        """Put back the folders of planned runs that the file holds, but for their checkpoints.

        Raises:
            ValueError: If the file is not as sampa wrote it.
        """
        refused: Counter[str] = Counter()
        for line in read_json_lines(self.file) if self.file.exists() else []:
            folder = place_below(self.folder, line["place"], f"place in {self.file}")
            reason = self._refusal(line, folder)
            if reason == UNPLANNED and (self.keeps_others or self._is_of_another_seed(line)):
                self._others.append(line)
            elif reason:
                refused[reason] += 1
            elif not (folder / "result.json").exists():
                write_finished({**line, "run": self.planned[folder].as_json()}, folder)
        for reason, count in refused.items():
            say(f"{self.file}: {count} runs {reason}")

    def _refusal(self, line: dict[str, Any], folder: Path) -> str:
        """Why a line is of no use; empty if it is."""
        reason = why_not(line, self.processes, allow_dirty=self.allow_dirty)
        if reason:
            return f"{reason} are made anew"
        if folder not in self.planned:
            return UNPLANNED
        is_same = settings_in(line) == settings_of(self.planned[folder])
        return "" if is_same else "of another edition are made anew"

    def _is_of_another_seed(self, line: dict[str, Any]) -> bool:
        """Whether it is a planned run but for its seed, because fewer seeds are asked for now."""
        found = settings_in(line, seed=0)
        return found in {settings_of(replace(run, seed=0)) for run in self.planned.values()}

    def save(self) -> None:
        """Write the file anew if a planned run was finished since."""
        found = sorted(f for f in self.folder.rglob("result.json") if f.parent in self.planned)
        if found == self._finished:
            return
        lines = [*map(self._line, found), *self._others]
        lines = [line for line in lines if self.allow_dirty or is_committed(line)]
        lines.sort(key=lambda line: PurePosixPath(line["place"]).parts)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.file, "".join(f"{json.dumps(line)}\n" for line in lines).encode())
        self._finished = found

    def _line(self, result: Path) -> dict[str, Any]:
        place = result.parent.relative_to(self.folder).as_posix()
        return {"place": place, **line_of(result.parent)}

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
