"""One HTML page with the results of a benchmark."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from sampa.lab.bench.results import Ratio, advice
from sampa.lab.bench.show import described, sheets
from sampa.lab.report.page import template
from sampa.lab.report.svg import MUTED, SERIES, figure, to_svg

SHOWN = ("sam/sampa", "sampa/sgd", "sampa/limit", "ddp_sam/sampa")


def page(result: dict[str, Any]) -> str:
    """The page: advice, a chart of the ratios, the tables, the conditions."""
    return template("bench.html.j2").render(
        title=f"{result['conditions']['problem']['model']}: what a step costs",
        advice=advice(result),
        chart=Markup(ratio_chart(result)),
        sheets=sheets(result),
        conditions=described(result["conditions"]),
    )


def ratio_chart(result: dict[str, Any]) -> str:
    """The main ratios as dots with their quartiles; 1 is where both take the same time."""
    found = [(name, Ratio(**result["ratios"][name])) for name in SHOWN if name in result["ratios"]]
    with figure() as drawn:
        axes = drawn.add_subplot()
        axes.axvline(1.0, color=MUTED, linewidth=0.8)
        for row, (_, r) in enumerate(reversed(found)):
            axes.plot([r.low, r.high], [row, row], color=SERIES[0], linewidth=4, alpha=0.35)
            axes.plot([r.median], [row], color=SERIES[0], marker="o")
        names = [name.replace("/", " / ") for name, _ in reversed(found)]
        axes.set_yticks(range(len(found)), names)
        axes.set_xlabel("ratio of step times")
        return to_svg(drawn, "ratios")
