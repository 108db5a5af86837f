"""Reports: one HTML page from the folders of finished runs.

records, collect (folders → finished runs) · groups (runs → recipes and variants) · recipe, curves,
captions, experiment, flatness (their tables, charts and words) · page (all of it → HTML).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sampa.lab.report.collect import collect
from sampa.lab.report.groups import group
from sampa.lab.report.page import page_view, render

__all__ = ["Report", "make_report"]


@dataclass(frozen=True)
class Report:
    """A page, and how many runs it shows and leaves out."""

    html: str
    runs: int
    left_out: int


def make_report(folders: Sequence[Path], baseline: str | None = None) -> Report:
    """A page about all runs below some folders; the same files give the same page.

    Args:
        folders: Where to look.
        baseline: The method that others are compared with; the first of each recipe if not given.

    Raises:
        ValueError: If there is no run, or no recipe has that baseline.
    """
    found = collect(folders)
    recipes, more = group(found.runs, baseline)
    left_out = [*found.left_out, *more]
    shown = sum(len(recipe.runs) for recipe in recipes)
    view = page_view(recipes, left_out, found.outcomes, found.flatness)
    return Report(render(view), shown, len(left_out))
