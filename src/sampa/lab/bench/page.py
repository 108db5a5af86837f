"""One HTML page with the result of a benchmark."""

from __future__ import annotations

from markupsafe import Markup

from sampa.lab.bench.result import BenchResult, advice
from sampa.lab.bench.tables import measured_on, ratio_label, result_tables
from sampa.lab.results.charts import Chart, Line, chart_in_words
from sampa.lab.results.drawing import page_chart
from sampa.lab.results.html import template

SHOWN_RATIOS = ("sam/sampa", "sampa/sgd", "sampa/limit", "ddp_sam/sampa")


def bench_page(result: BenchResult) -> str:
    """The page: advice, a chart of the ratios, the tables, the conditions."""
    chart = ratio_chart(result)
    return template("bench.html.j2", "sampa.lab.bench").render(
        title=f"{result.workload.model}: what a step costs",
        advice=advice(result),
        chart=Markup(page_chart(chart)),
        in_words=chart_in_words(chart),
        tables=result_tables(result),
        conditions=measured_on(result),
    )


def ratio_chart(result: BenchResult) -> Chart:
    """The main ratios with their quartiles; 1 is where both take the same time."""
    found = [(name, result.ratios[name]) for name in SHOWN_RATIOS if name in result.ratios]
    lines = [Line(ratio_label(name), [], [r.median], [r.low], [r.high]) for name, r in found]
    return Chart(
        "ratios", "Ratios", "ratio of step times", "", lines, kind="intervals", reference=1.0
    )
