"""`sampa report`: one HTML page from finished runs."""

from __future__ import annotations

from sampa.lab.commands.arguments import ReportArguments
from sampa.lab.terminal import say

EXTRA = ("contourpy", "jinja2", "markdown_it", "markupsafe")


def main(arguments: ReportArguments) -> int:
    try:
        from sampa.lab.report import make_report
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        needed = "sampa report needs its extra: pip install 'sampa[report]'"
        raise ValueError(f"{error.name} is missing; {needed}") from error
    made = make_report(arguments.folders, arguments.baseline)
    # References to characters that UTF-8 has no bytes for, as in undecodable file names.
    page = made.html.encode("utf-8", "xmlcharrefreplace")
    arguments.out.write_bytes(page)
    left_out = f", {made.left_out} left out (the page says why)" if made.left_out else ""
    runs = "1 run" if made.runs == 1 else f"{made.runs} runs"
    say(f"{arguments.out}: {runs}{left_out}, {len(page) / 1000:.0f} kB")
    return 0
