"""Methods by the names that people type."""

from __future__ import annotations

import re
from functools import partial

from sampa.catalog import METHODS, Factory
from sampa.messages import unknown

ALIASES = {"sgd": "base", "adamw": "base", "adam": "base", "m-sam": "msam", "sampa-0.2": "sampa"}

_SAMPA_WITH_LAMBDA = re.compile(r"sampa-([01](?:\.\d+)?)")


def find_method(name: str) -> Factory:
    """The factory behind a name; `sampa-0.1` is SAMPa with that λ.

    Raises:
        ValueError: Naming the nearest methods.
    """
    known = METHODS.get(ALIASES.get(name, name))
    if known is not None:
        return known
    match = _SAMPA_WITH_LAMBDA.fullmatch(name)
    if match:
        return partial(METHODS["sampa"], lam=float(match.group(1)))
    raise ValueError(unknown("method", name, [*METHODS, *ALIASES]))
