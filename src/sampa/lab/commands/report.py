"""`sampa report`: one HTML page from finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

EXTRA = ("jinja2", "markupsafe", "matplotlib")


def report(
    folders: Positional[tuple[Path, ...]],
    out: Annotated[Path, arg(aliases=("-o",))] = Path("report.html"),
    baseline: str | None = None,
) -> int:
    """Make one HTML page from all runs below some folders.

    The page has tables, curves and the conditions of each recipe, and needs no network: everything
    is in the one file. Runs that are unfinished or unreadable are listed with the reason. A file
    paper.json in a folder puts published values beside those of the runs below it:

        {"metric": "accuracy", "values": {"sam": [94.26, 0.70]}, "source": "Table 2"}

    Examples:
        sampa report runs
        sampa report runs/digits-cpu runs/cifar10-cpu -o comparison.html
        sampa report runs --baseline sam

    Args:
        folders: Where to look for runs.
        out: The file to write.
        baseline: The method that the others are compared with (default: the first of each recipe).
    """
    try:
        from sampa.lab.report import make_report
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        needed = "sampa report needs its extra: pip install 'sampa[report]'"
        raise ValueError(f"{error.name} is missing; {needed}") from error
    if not folders:
        raise ValueError("name at least one folder with runs, such as runs")
    made = make_report(folders, baseline)
    # References to characters that UTF-8 has no bytes for, as in undecodable file names.
    page = made.html.encode("utf-8", "xmlcharrefreplace")
    out.write_bytes(page)
    left_out = f", {made.left_out} left out" if made.left_out else ""
    print(f"{out}: {made.runs} runs{left_out}, {len(page) / 1000:.0f} kB")
    return 0
