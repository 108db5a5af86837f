"""The result of a sweep as one HTML page, and as a record: numbers, pictures and a page of text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sampa.lab.files import replace_file
from sampa.lab.flatness.outcome import Found, correlation_table, difference_table, value_table
from sampa.lab.flatness.pictures import charts, planes
from sampa.lab.results.charts import Chart
from sampa.lab.results.heat_map import HeatMap, heat_map_file
from sampa.lab.results.html import script, template
from sampa.lab.results.table import Table, as_markdown
from sampa.lab.training.conditions import condition_list

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
}


@dataclass(frozen=True)
class Part:
    """What is shown of one recipe."""

    recipe: str
    anchor: str
    tables: list[Table]
    charts: list[Chart]
    planes: list[tuple[str, str, list[HeatMap]]]


def parts_of(found: Found) -> list[Part]:
    parts = []
    for i, recipe in enumerate(found.recipes, start=1):
        tables = list(filter(None, [value_table(found, recipe), difference_table(found, recipe)]))
        maps = [(*words, planes(found, recipe, kind)) for kind, words in PLANES.items()]
        shown = [(title, note, some) for title, note, some in maps if some]
        parts.append(Part(recipe, f"recipe-{i}", tables, charts(found, recipe), shown))
    return parts


def page(found: Found) -> str:
    """The page; only our own script may run."""
    text, digest = script("page.js", "hover.js")
    return template("flatness.html.j2", "sampa.lab.flatness").render(
        title=title_of(found),
        summary=list(filter(None, [correlation_table(found)])),
        parts=parts_of(found),
        command=found.command,
        conditions=condition_list(found.conditions).replace("\n", "; "),
        script=text,
        script_hash=digest,
    )


def title_of(found: Found) -> str:
    models = len(found.subjects)
    return f"Flatness of {models} model{'' if models == 1 else 's'}"


def write_record(found: Found, folder: Path) -> None:
    """results.json, README.md and the pictures."""
    from sampa.lab.results.drawing import write_chart  # matplotlib may be missing

    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found.as_json(), indent=1, ensure_ascii=False)
    replace_file(folder / "results.json", f"{text}\n".encode())
    notes = folder / "notes.md"
    words = notes.read_text(encoding="utf-8").strip() if notes.exists() else ""
    lines = [f"# {title_of(found)}", *filter(None, [words])]
    lines += _in_markdown(filter(None, [correlation_table(found)]))  # pyright: ignore[reportArgumentType]
    for part in parts_of(found):
        lines += [f"## {part.recipe}", *_in_markdown(part.tables)]
        for kind, (title, note, maps) in zip(PLANES, part.planes, strict=False):
            name = f"{kind}-{part.recipe}.svg"
            replace_file(folder / name, heat_map_file(maps).encode())
            lines += [f"![{title}, {part.recipe}]({name})", f"{title}. {note}"]
        for chart in part.charts:
            write_chart(chart, folder)
            lines += [f"![{chart.title}]({chart.name}.svg)", f"{chart.title}. {chart.note}"]
    lines += ["## Conditions", "Written by", f"    {found.command}"]
    lines.append(condition_list(found.conditions))
    replace_file(folder / "README.md", ("\n\n".join(lines) + "\n").encode())


def _in_markdown(tables: Sequence[Table]) -> list[str]:
    found: list[str] = []
    for table in tables:
        found += [f"### {table.title}", "\n".join(as_markdown(table)), " ".join(table.notes)]
    return found
