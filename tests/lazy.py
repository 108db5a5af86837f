"""Packages that take seconds to import, loaded only by those processes that use them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Lazy:
    """A module that is imported with the first public name that is taken from it.

    Private ones are what pytest asks everything for.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)
