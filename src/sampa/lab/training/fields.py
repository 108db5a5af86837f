"""Dataclasses from untrusted JSON: every field is known, present and of its type."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from sampa.messages import unknown

T = TypeVar("T")


def read_fields(kind: type[T], values: Any, where: str) -> T:
    """The dataclass that a JSON object describes.

    Args:
        kind: The dataclass; its fields may be dataclasses themselves, lists of them, or
            of a type with `from_json`. A field whose metadata has
            "saved" as False is never read.
        values: What was read.
        where: Its name in messages.

    Raises:
        ValueError: Naming the field, its rule and what was found; a misspelled one with the
            nearest name.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{where} must be a JSON object, got {_shown(values)}")
    hints = _hints(kind)
    for name in values:
        if name not in hints:
            raise ValueError(unknown(f"field of {where}", name, hints))
    for f in fields(kind):  # pyright: ignore[reportArgumentType]
        required = f.default is MISSING and f.default_factory is MISSING
        if required and f.name not in values:
            raise ValueError(f"{where} must have a field {f.name!r}; it is missing")
    found = {n: _read(hints[n], v, f"{where}.{n}") for n, v in values.items()}
    try:
        return kind(**found)
    except ValueError as error:  # a rule of the dataclass itself
        raise ValueError(f"{where} is not possible: {error}") from error


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    hints, saved = get_type_hints(kind), [f for f in fields(kind) if f.metadata.get("saved", True)]
    return {f.name: hints[f.name] for f in saved}


def _read(hint: Any, value: Any, where: str) -> Any:
    if hasattr(hint, "from_json"):
        return hint.from_json(value, where)
    if isinstance(hint, type) and is_dataclass(hint):
        return read_fields(hint, value, where)
    if get_origin(hint) is list and isinstance(value, list):
        entry = get_args(hint)[0]
        return [_read(entry, v, f"{where}[{i}]") for i, v in enumerate(value)]
    if not _fits(hint, value):
        raise ValueError(f"{where} must be {_rule(hint)}, got {_shown(value)}")
    return value


def _fits(hint: Any, value: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(choice, value) for choice in get_args(hint))
    if origin is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if origin is dict:
        entry = get_args(hint)[1]
        return isinstance(value, dict) and all(_fits(entry, v) for v in value.values())
    if origin is list:
        return isinstance(value, list) and all(_fits(get_args(hint)[0], v) for v in value)
    if hint is float:
        # A whole number may be too large for a float.
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and abs(value) <= 1e300 and math.isfinite(value)
    return hint is Any or type(value) is hint


def _rule(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_rule(choice) for choice in get_args(hint))
    if get_origin(hint) is dict:
        return f"an object of {_rule(get_args(hint)[1])}"
    if get_origin(hint) is list:
        return f"a list of {_rule(get_args(hint)[0])}"
    names = {str: "text", int: "a whole number", float: "a finite number", bool: "true or false"}
    return names.get(hint, "null" if hint is type(None) else "any value")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
