"""Methods by the names that people type."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import partial

from sampa.catalog import METHODS, Factory

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


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """What to say about a name that does not exist."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(names)}"
    return f"{kind} must be a known name, got {name!r}; {hint}"
