"""Writing: an outcome as files, and the runs behind it as one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sampa.lab.reproduce.outcome import Outcome
from sampa.lab.reproduce.render import markdown
from sampa.lab.reproduce.request import Request
from sampa.lab.training.folder import RunFolder

NOTES = "notes.md"  # beside the results, by hand: what is to be said about them; no numbers


def write(outcome: Outcome, folder: Path, request: Request, *, plots: bool) -> None:
    """Write README.md and results.json, and the figures if asked.

    Where the folder is not that of the runs, they are written to runs.jsonl as well.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(outcome.as_json(), indent=1, ensure_ascii=False, allow_nan=False)
    (folder / "results.json").write_text(text + "\n", encoding="utf-8")
    notes = folder / NOTES
    said = notes.read_text(encoding="utf-8") if notes.exists() else ""
    page = markdown(outcome, command(outcome, request), said)
    (folder / "README.md").write_text(page, encoding="utf-8")
    own = request.folder(outcome.id)
    if folder.resolve() != own.resolve():
        write_runs(own, folder / "runs.jsonl")
    if plots:
        from sampa.lab.reproduce.figures import write_charts

        write_charts(outcome, folder)


def command(outcome: Outcome, request: Request) -> str:
    """A command line to repeat elsewhere: what is this machine's own is left out."""
    seeds = f" --seeds {request.seeds}" if request.seeds else ""
    devices = f" --devices {request.devices}" if request.devices > 1 else ""
    return f"sampa reproduce {outcome.id} --scale {outcome.scale}{seeds}{devices}"


def write_runs(folder: Path, file: Path) -> None:
    """All finished runs below a folder, one line each: run, conditions, metrics and result."""
    lines = [
        json.dumps(_run_line(found.parent, folder)) for found in sorted(folder.rglob("result.json"))
    ]
    if lines:
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _run_line(path: Path, folder: Path) -> dict[str, Any]:
    run = RunFolder(path)
    saved, result = run.read("run.json") or {}, run.read("result.json")
    place = path.relative_to(folder).as_posix()
    return {"place": place, **saved, "metrics": run.metrics(), "result": result}
