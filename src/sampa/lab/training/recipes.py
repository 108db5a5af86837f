"""Recipes: complete runs by name, from the file that has their settings.

A new one is a table of a few lines in recipes.toml, deriving from an old one.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

from sampa.lab.training.fields import read_fields
from sampa.lab.training.run import Run
from sampa.messages import unknown

_FILE = resources.files("sampa.lab.training").joinpath("recipes.toml")
RECIPES: dict[str, dict[str, Any]] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
"""By name: the fields of a run, and `like`, the recipe that gives all others."""


def find_recipe(name: str) -> Run:
    """The run behind a name.

    Raises:
        ValueError: Naming the nearest recipes.
    """
    if name not in RECIPES:
        raise ValueError(unknown("recipe", name, RECIPES))
    return read_fields(Run, {"name": name, **_fields(name)}, name)


def _fields(name: str) -> dict[str, Any]:
    own = dict(RECIPES[name])
    found = _fields(own.pop("like")) if "like" in own else {}
    for field, value in own.items():
        found[field] = {**found.get(field, {}), **value} if isinstance(value, dict) else value
    return found
