"""Do what docs/tutorial.md says, and write what was printed into it.

    python -m tools.site.tutorial

A Python block is a part of train.py: it is added at the end, or takes the place of the part with
the same first line. Commands in a block of shell are run; what they print is in the block of text
after it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SKIPPED = ("python -m venv", ". env", "pip install")  # the tests have an environment already


@dataclass(frozen=True)
class Run:
    """Some commands of the page: the file as it is then, and what the page says they print."""

    file: str
    commands: tuple[str, ...]
    printed: str
    place: tuple[int, int]  # of the printed text in the page


def runs(page: str) -> Iterator[Run]:
    """From top to bottom."""
    parts: dict[str, str] = {}
    commands: tuple[str, ...] = ()
    for match in FENCE.finditer(page):
        kind, text = match[1], match[2]
        if kind == "python":
            parts[text.split("\n", 1)[0]] = text
        elif kind == "sh":
            commands = tuple(c for c in text.splitlines() if not c.startswith(SKIPPED))
        elif kind == "text":
            yield Run("\n\n".join(parts.values()), commands, text, match.span(2))


def carry_out(run: Run, folder: Path) -> str:
    """What the commands of a run print."""
    (folder / "train.py").write_text(run.file, encoding="utf-8")
    return "".join(_printed(shlex.split(command), folder) for command in run.commands)


def _printed(command: list[str], folder: Path) -> str:
    if command[0] == "rm":
        (folder / command[1]).unlink()
        return ""
    programs = {
        "python": [sys.executable],
        "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone"],
    }
    done = subprocess.run(
        [*programs[command[0]], *command[1:]],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def main() -> int:
    import tempfile

    page = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        printed = [(run.place, carry_out(run, Path(folder))) for run in runs(page)]
    for (start, end), text in reversed(printed):
        page = page[:start] + text + page[end:]
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
