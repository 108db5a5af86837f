"""Recipes: complete runs by name, from the file that has their settings, or of the user's own.

A new one is a table of a few lines in recipes.toml, deriving from an old one; a JSON file with the
same fields; or a function that returns a `Run`.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from sampa.lab.files import read_json
from sampa.lab.named import called, file_fingerprint, fingerprint, is_own, load_code
from sampa.lab.training.fields import read_fields
from sampa.lab.training.run import Run
from sampa.messages import unknown

_FILE = resources.files("sampa.lab.training").joinpath("recipes.toml")
RECIPES: dict[str, dict[str, Any]] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
"""By name: the fields of a run, and `like`, the recipe that gives all others."""


def find_recipe(name: str) -> Run:
    """The run behind a name of ours.

    Raises:
        ValueError: Naming the nearest recipes.
    """
    if name not in RECIPES:
        raise ValueError(unknown("recipe", name, RECIPES))
    return read_fields(Run, {"name": name, **_all_fields(RECIPES[name])}, name)


def recipe_of(name: str) -> Run:
    """The run that the command line names: a recipe of ours, or one of the user's own.

    Args:
        name: Of a recipe; of a JSON file, either a recipe or the run.json that a run left behind;
            or `file.py:function` or `package.module:function`, which is executed.

    Raises:
        ValueError: If there is no such recipe, or it describes no run.
    """
    if name.endswith(".json"):
        return _from_json(Path(name))
    if name.endswith(".py"):
        raise ValueError(f"a recipe in Python is named with its function, {name}:FUNCTION")
    if not is_own(name):
        return find_recipe(name)
    found = called(load_code(name, "recipe"), name)
    if not isinstance(found, Run):
        kind = type(found).__name__
        raise ValueError(f"{name} must return a sampa.lab.training.run.Run, got {kind}")
    return replace(found, sources={"recipe": fingerprint(name)})


def _from_json(file: Path) -> Run:
    saved = read_json(file)
    if not isinstance(saved, dict):
        raise ValueError(
            f"{file} must be a recipe (an object with the fields of a run, or with `like`), or a "
            f'run.json (an object with "run"), got {type(saved).__name__}'
        )
    if isinstance(saved.get("run"), dict):
        return Run.from_json(saved["run"])
    usual = {"name": file.stem, "about": f"the recipe in {file.name}"}
    run = Run.from_json({**usual, **_all_fields({"name": file.stem, **saved})}, str(file))
    return replace(run, sources={"recipe": file_fingerprint(file)})


def _all_fields(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a recipe, with those of the one that it is like."""
    own = dict(given)
    like = own.pop("like", None)
    if like is not None and like not in RECIPES:
        raise ValueError(unknown("like", str(like), RECIPES))
    found = {} if like is None else _all_fields(RECIPES[like])
    for field, value in own.items():
        is_part = isinstance(value, dict) and isinstance(found.get(field), dict)
        found[field] = {**found[field], **value} if is_part else value
    return found
