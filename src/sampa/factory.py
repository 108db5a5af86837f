"""What a factory says about itself: a summary (its docstring's first line) and a source."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from sampa.optimizer import SharpnessAware

Factory = Callable[..., SharpnessAware]
"""Builds the optimizer of a method: `Name(base, <its hyper-parameters>, **options)`."""

_F = TypeVar("_F", bound=Factory)


def defaults_from(source: str) -> Callable[[_F], _F]:
    """Note where the defaults of a factory come from."""

    def noted(factory: _F) -> _F:
        vars(factory)["source"] = source
        return factory

    return noted


def variant(factory: Factory, summary: str, source: str, **choices: Any) -> Factory:
    """A factory with other defaults, and its own words about them."""
    chosen = partial(factory, **choices)
    chosen.__doc__ = summary
    return defaults_from(source)(chosen)
