"""Tables and pages as HTML. All text is escaped; pages need nothing but themselves."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from sampa.lab.results.charts import Chart, chart_in_words
from sampa.lab.results.drawing import page_chart
from sampa.lab.results.heat_map import ColorScale, HeatMap, color_bar, heat_map
from sampa.lab.results.looks import keys, look
from sampa.lab.results.table import Table


def template(name: str, package: str = "sampa.lab.results") -> Template:
    """A template of a package, which may use those of this one; what it is given is escaped.

    Args:
        name: Its file.
        package: Where it is.
    """
    loaders = [PackageLoader(p) for p in dict.fromkeys((package, "sampa.lab.results"))]
    environment = Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    named: tuple[Any, ...] = (
        *(minus, pieces, look, keys, chart_in_words, drawn),
        *(heat_map, color_bar, heat_scale),
    )
    environment.filters.update({each.__name__: each for each in named})
    return environment.get_template(name)


def script(*names: str) -> tuple[Markup, str]:
    """Scripts of ours as one, and its hash for the page's policy: nothing else may run."""
    text = "\n".join(template(name).render() for name in names)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Markup(text), f"sha256-{digest}"


def as_html(table: Table, kind: str = "") -> Markup:
    """The table in a frame of its own, sortable where the page has the script for it.

    Args:
        table: The table.
        kind: Further classes of the element, for the style sheet.
    """
    macros = template("tables.html.j2").module
    return Markup(macros.data_table(table, kind))  # pyright: ignore[reportAttributeAccessIssue]


def drawn(chart: Chart) -> Markup:
    """A chart as an element."""
    return Markup(page_chart(chart))


def heat_scale(maps: Sequence[HeatMap]) -> ColorScale:
    """The one scale of several maps."""
    return ColorScale.of(maps)


def pieces(text: str) -> tuple[str, str]:
    """A number and its deviation, between which a narrow cell may break: 9.25 and ± 0.35."""
    value, sign, error = text.partition(" ± ")
    return value, f"± {error}" if sign else ""


def minus(number: str) -> str:
    """A formatted number with a true minus sign."""
    return number.replace("-", "−")
