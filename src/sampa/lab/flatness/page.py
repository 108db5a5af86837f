"""The result of a sweep as one HTML page, and as a record: numbers, pictures and a page of text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sampa.lab.files import as_file_name, replace_file
from sampa.lab.flatness.outcome import Found, barrier_table, flatness_table, percent_table
from sampa.lab.flatness.pictures import charts, planes
from sampa.lab.flatness.ranks import correlation_table
from sampa.lab.flatness.saved import write_found
from sampa.lab.flatness.settings import FLATNESS_FILE
from sampa.lab.results.charts import Chart
from sampa.lab.results.heat_map import HeatMap, heat_map_file
from sampa.lab.results.html import script, template
from sampa.lab.results.table import Table, as_markdown

PLANES = {
    "plane": (
        "Loss on a random plane",
        "Training loss on the plane of two random filter-normalized directions, the same for all "
        "models, one model of each method; the cross is the trained model. One scale for all.",
    ),
    "eigenplane": (
        "Loss on the plane of the two top eigenvectors",
        "Training loss along the two directions of the largest curvature of each model, distances "
        "as they are; the cross is the trained model. One scale for all.",
    ),
    "triangle": (
        "Loss on the plane through three models",
        "Training loss on the plane through the first models of three methods, which the crosses "
        "mark; coordinates are distances, and BatchNorm's statistics move with the weights.",
    ),
}


@dataclass(frozen=True)
class Plane:
    """Heat maps of one kind, on one scale."""

    kind: str
    title: str
    note: str
    maps: list[HeatMap]


@dataclass(frozen=True)
class RecipeSection:
    """What is shown of one recipe."""

    recipe: str
    anchor: str
    tables: list[Table]
    charts: list[Chart]
    planes: list[Plane]


def tables_of(found: Found, recipe: str) -> list[Table]:
    """All tables of a recipe."""
    makers = (flatness_table, percent_table, barrier_table)
    return list(filter(None, [make(found, recipe) for make in makers]))


def planes_of(found: Found, recipe: str) -> list[Plane]:
    """All landscapes of a recipe, kind by kind."""
    shown: list[Plane] = []
    for kind, (title, note) in PLANES.items():
        maps = planes(found, recipe, kind)
        if maps:
            shown.append(Plane(kind, title, f"{note} {found.cost(kind)}", maps))
    return shown


def part_of(found: Found, recipe: str, anchor: str) -> RecipeSection:
    """What is shown of a recipe; its ids begin with the anchor."""
    shown = tables_of(found, recipe), charts(found, recipe), planes_of(found, recipe)
    return RecipeSection(recipe, anchor, *shown)


def parts_of(found: Found) -> list[RecipeSection]:
    return [part_of(found, r, f"recipe-{i}") for i, r in enumerate(found.recipes, start=1)]


def flatness_page(found: Found) -> str:
    """The page; only our own script may run."""
    text, digest = script("page.js", "hover.js")
    return template("flatness.html.j2", "sampa.lab.flatness").render(
        title=title_of(found),
        summary=list(filter(None, [correlation_table(found)])),
        parts=parts_of(found),
        command=found.command,
        conditions="; ".join(found.conditions.as_lines()),
        script=text,
        script_hash=digest,
    )


def title_of(found: Found) -> str:
    models = len(found.subjects)
    return f"Flatness of {models} model{'' if models == 1 else 's'}"


def write_flatness_record(found: Found, folder: Path) -> None:
    """flatness.json, README.md and the pictures."""
    from sampa.lab.results.drawing import write_chart

    write_found(found, folder / FLATNESS_FILE)
    notes = folder / "notes.md"
    words = notes.read_text(encoding="utf-8").strip() if notes.exists() else ""
    lines = [f"# {title_of(found)}", *filter(None, [words])]
    lines += _in_markdown(filter(None, [correlation_table(found)]))
    for part in parts_of(found):
        lines += [f"## {part.recipe}", *_in_markdown(part.tables)]
        for plane in part.planes:
            name = f"{as_file_name(f'{plane.kind}-{part.recipe}')}.svg"
            replace_file(folder / name, heat_map_file(plane.maps).encode())
            lines += [f"![{plane.title}, {part.recipe}]({name})", f"{plane.title}. {plane.note}"]
        for chart in part.charts:
            write_chart(chart, folder)
            lines += [f"![{chart.title}]({chart.name}.svg)", f"{chart.title}. {chart.note}"]
    lines += ["## Conditions", "Written by", f"    {found.command}"]
    lines.append(found.conditions.as_markdown())
    replace_file(folder / "README.md", ("\n\n".join(lines) + "\n").encode())


def _in_markdown(tables: Iterable[Table]) -> list[str]:
    found: list[str] = []
    for table in tables:
        found += [f"### {table.title}", "\n".join(as_markdown(table)), " ".join(table.notes)]
    return found
