"""A recipe's part of the page: its sentence, tables, charts, conditions and settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sampa.lab.conditions import flat
from sampa.lab.report.captions import noisy_validation, rho_of, with_rho
from sampa.lab.report.curves import curves
from sampa.lab.report.groups import Recipe, Variant
from sampa.lab.results.charts import Chart, Line
from sampa.lab.results.html import minus
from sampa.lab.results.looks import Look, look
from sampa.lab.results.outcome import Entry
from sampa.lab.results.outcome_tables import method_table, paper_cell
from sampa.lab.results.pictures import with_deviation
from sampa.lab.results.table import Cell, Table, difference, mean, number_cell, row, seconds
from sampa.lab.training.variants import RUN_NAMES, family, is_number, shared_settings

Facts = dict[str, list[str]]
"""Names with their value, or with all values if the runs differ in it."""

# The table has them, or each method its own.
HIDDEN = (*RUN_NAMES, "rho", "lam", "rhos", "method_options")
SPEED = ("machine.", "threads", "processes")  # what seconds depend on
STEADY_RATIO = 1.5  # of a method's slowest run to its fastest; above it the machine was busy


@dataclass(frozen=True)
class RecipeView:
    """One recipe's part of the page; its id there is the anchor."""

    recipe: Recipe
    anchor: str
    template: str = "recipe.html.j2"
    title: str = ""

    @property
    def name(self) -> str:
        return self.recipe.name

    @property
    def verdicts(self) -> dict[str, int]:
        return {}

    @property
    def finding(self) -> str:
        return headline(self.recipe)

    @property
    def keys(self) -> list[tuple[Look, str]]:
        """The one legend of its charts."""
        return [(look(variant.look), variant.label) for variant in self.recipe.variants]

    @property
    def tables(self) -> list[Table]:
        """The results and, if the runs came with any, the paper's values beside ours."""
        return list(filter(None, [result_table(self.recipe), paper_table(self.recipe)]))

    @property
    def runs(self) -> Table:
        return run_table(self.recipe)

    @property
    def mixed(self) -> list[str]:
        """The conditions that are not the same for all runs."""
        return [name for name, values in self.conditions.items() if len(values) > 1]

    @property
    def charts(self) -> list[Chart]:
        return [*curves(self.recipe), time_chart(self.recipe, self.mixed), *sweeps(self.recipe)]

    @property
    def conditions(self) -> Facts:
        """Commit, versions, machine, threads and processes of all runs."""
        runs = self.recipe.runs
        names = dict.fromkeys(name for run in runs for name in run.conditions)
        return {n: _counted([r.conditions.get(n, "not recorded") for r in runs]) for n in names}

    @property
    def settings(self) -> Facts:
        """The recipe's fields, and the methods' hyper-parameters."""
        runs = [flat(run.run.as_json()) for run in self.recipe.runs]
        shown = [name for name in runs[0] if name.split(".")[0] not in HIDDEN]
        facts = {name: _counted([run.get(name, "none") for run in runs]) for name in shown}
        for variant in self.recipe.variants:
            text = ", ".join(f"{k} = {v}" for k, v in flat(variant.hyperparameters).items())
            facts[variant.label] = [text or "no hyper-parameters"]
        return facts


def _counted(values: Sequence[str]) -> list[str]:
    """The one value, or each with the number of runs that have it."""
    counts = Counter(values)
    if len(counts) == 1:
        return [values[0]]
    return [f"{value} ({n} run{'s' if n > 1 else ''})" for value, n in counts.items()]


# ---- the sentence ----------------------------------------------------------------------------


def headline(recipe: Recipe) -> str:
    """Which variant is best, by how much, and whether that can be told."""
    scores = {v.label: v.entry(recipe.metric).ours for v in recipe.variants}
    ranked = sorted(recipe.variants, key=lambda v: scores[v.label].mean, reverse=True)
    best, baseline = ranked[0], recipe.baseline
    result = f"{minus(str(scores[best.label]))} (n = {len(best.runs)})"
    if len(ranked) == 1:
        return f"Test {recipe.metric} of {best.label}: {result}. Nothing to compare it with."
    start = f"Highest mean test {recipe.metric}: {best.label}"
    if best is not baseline:
        return f"{start}, {result}. Against {baseline.label}{_judged(recipe, best)}."
    second = ranked[1]
    return f"{start}, the baseline, {result}. Next is {second.label}{_judged(recipe, second)}."


def _judged(recipe: Recipe, variant: Variant) -> str:
    """A variant's difference to the baseline, and what it is worth."""
    comparison = recipe.against_baseline(variant)
    if comparison is None:
        return " there is no difference to give: no seed in common"
    found = comparison.ours
    text = minus(difference(found).text)
    if found.n == 1:
        return f", on the same seed: {text}; one seed is too few to tell"
    text = f", on the same {found.n} seeds: {text} (95 % interval)"
    if found.mean == found.std == 0:
        return f"{text}, no difference on any seed"
    if not found.is_sure:
        return f"{text}, which reaches 0: too few seeds to tell them apart"
    return f"{text}, which leaves 0 out"


# ---- tables ----------------------------------------------------------------------------------


def result_table(recipe: Recipe) -> Table:
    """Every variant with its test metric, its difference to the baseline, and what it took."""
    which = {v.runs[0].run.select for v in recipe.variants}
    chosen = "the last epoch" if which == {"last"} else "the epoch that was best on validation"
    table = method_table(
        f"Results of {recipe.name}",
        {v.label: v.results for v in recipe.variants},
        recipe.metric,
        recipe.baseline.label,
        with_epochs=True,
    )
    labels = " (noisy labels)" if noisy_validation(recipe) and which != {"last"} else ""
    notes = (
        f"Test results of the model of {chosen}{labels}, mean ± standard deviation; differences "
        "are paired by seed, with their 95 % interval (Student's t).",
    )
    return replace(table, notes=notes, looks=tuple(v.look for v in recipe.variants))


def paper_table(recipe: Recipe) -> Table | None:
    """The paper's values beside ours, if the runs came with any."""
    paper = next((run.paper for run in recipe.runs if run.paper), None)
    if paper is None:
        return None
    rows: dict[int, tuple[Cell, ...]] = {}
    for v in recipe.variants:
        value = paper.values.get(v.label, paper.values.get(v.method))
        ours = {s: r.test[paper.metric] for s, r in v.results.items() if paper.metric in r.test}
        if value is not None and ours:
            entry = Entry("", v.label, ours, value)
            gap = number_cell(entry.difference, "+.2f")
            rows[v.look] = row(v.label, paper_cell(value), mean(entry.ours), gap)
    source = f" Source: {paper.source}." if paper.source else ""
    note = f"Test {paper.metric}, mean ± std; the difference is ours minus the paper's.{source}"
    title = f"The paper’s values beside ours, {recipe.name}"
    columns = ("method", "paper", "ours", "difference")
    return Table(title, columns, tuple(rows.values()), (note,), tuple(rows)) if rows else None


def run_table(recipe: Recipe) -> Table:
    """Every run by itself: what the means are made of."""
    pairs = [(variant, run) for variant in recipe.variants for run in variant.runs]
    rows: list[tuple[Cell, ...]] = []
    for variant, run in pairs:
        found, seed = run.result, number_cell(run.run.seed, "d")
        score, epoch = found.test[recipe.metric], number_cell(found.best_epoch + 1 or None, "d")
        rows.append(row(variant.label, seed, score, seconds(found.seconds), epoch, run.place))
    return Table(
        title=f"Runs of {recipe.name}",
        columns=("method", "seed", f"test {recipe.metric}", "seconds", "best epoch", "folder"),
        rows=tuple(rows),
        notes=("Every run by itself.",),
        looks=tuple(variant.look for variant, _ in pairs),
    )


# ---- charts ----------------------------------------------------------------------------------


def time_chart(recipe: Recipe, mixed: Sequence[str]) -> Chart:
    """What each variant reaches, and how long it takes."""
    lines = [
        Line(
            v.label,
            [r.seconds for r in v.results.values()],
            [r.test[recipe.metric] for r in v.results.values()],
            look=v.look,
        )
        for v in recipe.variants
    ]
    title = f"Test {recipe.metric} against time"
    note = f"Small marks are runs, large marks their means. {_time_caveat(lines, mixed)}".rstrip()
    axes = ("seconds of training", "")
    return Chart("time", title, *axes, lines, note, kind="points", legend=False)


def _time_caveat(lines: Sequence[Line], mixed: Sequence[str]) -> str:
    """Why the seconds of the runs should not be compared; empty if they may be."""
    if any(name.startswith(SPEED) for name in mixed):
        return "The runs were made under different conditions: do not compare their seconds."
    if any(max(line.x) > STEADY_RATIO * min(line.x) for line in lines):
        return "Runs of one method differ much in seconds, as on a busy machine: do not compare."
    return ""


def sweeps(recipe: Recipe) -> list[Chart]:
    """The variants that differ in λ only, for each method where there are two or more."""
    families: dict[tuple[tuple[str, str], ...], list[tuple[float, Variant]]] = {}
    for v in recipe.variants:
        lam = v.hyperparameters.get("lam")
        if is_number(lam):
            families.setdefault(_all_but_lam(v), []).append((float(lam), v))
    found = [f for f in families.values() if len({lam for lam, _ in f}) > 1]
    return [_sweep(recipe, f, f"sweep-{i}") for i, f in enumerate(found)]


def _sweep(recipe: Recipe, found: list[tuple[float, Variant]], name: str) -> Chart:
    by_lam: dict[float, list[float]] = {}
    for lam, v in sorted(found, key=lambda pair: pair[0]):
        by_lam.setdefault(lam, []).extend(r.test[recipe.metric] for r in v.results.values())
    entries = [Entry("", "", dict(enumerate(values))) for values in by_lam.values()]
    first, baseline = found[0][1], recipe.baseline
    line = with_deviation(family(first.method), list(by_lam), entries)
    apart = all(v is not baseline for _, v in found)
    dashed = f" Dashed: {with_rho(baseline)}." if apart else ""
    return Chart(
        name=name,
        title=f"Test {recipe.metric} of {line.label} over λ",
        x_label="λ",
        y_label="",
        lines=[replace(line, look=first.look)],
        note=f"Mean ± standard deviation over seeds, {rho_of(first)} throughout.{dashed}",
        reference=baseline.entry(recipe.metric).ours.mean if apart else None,
    )


def _all_but_lam(variant: Variant) -> tuple[tuple[str, str], ...]:
    """Everything that decides a variant's result, besides λ and the seed."""
    settings = shared_settings(variant.runs[0].run)
    options = {k: v for k, v in variant.hyperparameters.items() if k != "lam"}
    method = {"method": family(variant.method), "options": options}
    return tuple({**settings, **flat(method)}.items())
