"""The figures of a page, drawn together: on all processors, and those that are known not again.

A figure is kept under the hash of all that it is made from: the chart, the code and style that draw
it, and the versions of what they use. So a kept one is never out of date, and what is damaged is
drawn anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from functools import cache
from importlib import metadata
from itertools import chain
from pathlib import Path

from markupsafe import Markup

from sampa.lab.data.places import cache_folder
from sampa.lab.files import read_file, replace_file
from sampa.lab.pool import started
from sampa.lab.progress import Bar
from sampa.lab.results.charts import Chart
from sampa.lab.results.looks import STYLE

MOST = 2000  # figures that are kept; the half that was used least recently goes when there are more
LARGEST_FIGURE = 10_000_000  # bytes of one
DRAWN_HERE = 8  # figures that are drawn sooner than a process is started
DRAWN_BY = ("drawing.py", "looks.py", "svg.py", "readings.py", "charts.py", "summary.py")

Wanted = tuple[Chart, str]
"""A chart, and what the ids of its element begin with."""


class Figures:
    """The figures of one page.

    While the page is written each has a mark in its place, so that all are known before the first
    is drawn.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_hex(16)  # so that no name in a page can be one
        self._wanted: dict[str, Wanted] = {}

    def mark(self, chart: Chart, prefix: str) -> Markup:
        """What stands in a page for a chart until it is drawn; its ids begin with the prefix."""
        mark = f"figure-{self._secret}-{len(self._wanted)};"
        self._wanted[mark] = chart, prefix
        return Markup(mark)

    def put_into(self, page: str) -> str:
        """The page with all figures in the places of their marks."""
        before, *parts = page.split(f"figure-{self._secret}-")
        drawn = dict(zip(self._wanted, figures(list(self._wanted.values())), strict=True))
        found = list(drawn.values())
        pieces = [part.partition(";") for part in parts]
        return before + "".join(f"{found[int(number)]}{rest}" for number, _, rest in pieces)


def figures(wanted: Sequence[Wanted]) -> list[str]:
    """Charts as elements of a page: read where they are known, else drawn and kept."""
    kept = KeptFigures()
    names = [name_of(chart, prefix) for chart, prefix in wanted]
    found = {name: text for name in names if (text := kept.read(name)) is not None}
    missing = {n: w for n, w in zip(names, wanted, strict=True) if n not in found}
    for name, text in _drawn(missing):
        found[name] = text
        kept.write(name, text)
    kept.clear_up()
    return [found[name] for name in names]


def _drawn(missing: dict[str, Wanted]) -> Iterator[tuple[str, str]]:
    """Each as soon as it is drawn."""
    left = dict(missing)
    with Bar("figures", len(left), shown=bool(left)) as bar:
        for name, text in chain(_drawn_by_others(left), _drawn_here(left)):
            del left[name]
            yield name, text
            bar.advance()


def _drawn_by_others(left: dict[str, Wanted]) -> Iterator[tuple[str, str]]:
    """In a process for each processor, if there is enough to do."""
    processes = min(len(os.sched_getaffinity(0)), len(left) // DRAWN_HERE)
    if processes < 2:
        return
    try:
        with started(draw_figure, left.values(), processes) as running:
            names = dict(zip(running, left, strict=True))
            for done in as_completed(running):
                yield names[done], done.result()
    except BrokenProcessPool:  # one was killed, or cannot be started: what is left is drawn here
        return


def _drawn_here(left: dict[str, Wanted]) -> Iterator[tuple[str, str]]:
    for name, (chart, prefix) in list(left.items()):
        yield name, draw_figure(chart, prefix)


def draw_figure(chart: Chart, prefix: str) -> str:
    """One figure; only who draws waits for matplotlib."""
    from sampa.lab.results.drawing import page_chart

    return page_chart(chart, prefix)


def name_of(chart: Chart, prefix: str) -> str:
    """The hash of all that a figure is made from."""
    made_from = json.dumps([asdict(chart), prefix, drawn_by()])
    return hashlib.sha256(made_from.encode()).hexdigest()


@cache
def drawn_by() -> list[str]:
    """What draws: the hashes of our files, and versions."""
    here = Path(__file__).parent
    files = [*(here / name for name in DRAWN_BY), STYLE]
    versions = [f"{name} {metadata.version(name)}" for name in ("matplotlib", "numpy")]
    return [*(hashlib.sha256(file.read_bytes()).hexdigest() for file in files), *versions]


class KeptFigures:
    """Figures in the user's cache, each a file with its hash on the first line.

    A cache that cannot be written or read is as good as none.
    """

    def __init__(self) -> None:
        self._folder = cache_folder(None) / "figures"

    def read(self, name: str) -> str | None:
        """A figure that is kept and whole; else None."""
        file = self._folder / name
        try:
            digest, _, text = read_file(file, LARGEST_FIGURE, links=False).partition(b"\n")
            if hashlib.sha256(text).hexdigest() != digest.decode("ascii", "replace"):
                return None
            os.utime(file)  # it was of use
            return text.decode()
        except (OSError, ValueError):
            return None

    def write(self, name: str, text: str) -> None:
        content = text.encode("utf-8", "surrogatepass")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            digest = hashlib.sha256(content).hexdigest()
            replace_file(self._folder / name, digest.encode() + b"\n" + content)
        except OSError:
            pass

    def clear_up(self) -> None:
        """Remove what was not used for long, if there is much."""
        try:
            files = list(self._folder.iterdir())
            if len(files) > MOST:
                files.sort(key=lambda file: file.stat().st_mtime)
                for file in files[: len(files) - MOST // 2]:
                    file.unlink(missing_ok=True)
        except OSError:
            pass
