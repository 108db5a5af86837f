"""Options of commands: rules of their values, told beside their types, and help that is quiet.

Nothing here imports torch, so that a wrong value is told at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from tyro.conf import Positional, arg
from tyro.constructors import PrimitiveConstructorSpec

from sampa.messages import WrongUsage

Kind = TypeVar("Kind")
POSITIONAL = get_args(Positional[str])[1]


@dataclass(frozen=True)
class Rule:
    """What a value must be, in words and as a test; part of an option's type."""

    text: str
    holds: Callable[[Any], bool]


COUNT, NATURAL = Rule(">= 1", lambda v: v >= 1), Rule(">= 0", lambda v: v >= 0)
Count = Annotated[int, COUNT, arg(metavar="N")]
Natural = Annotated[int, NATURAL, arg(metavar="N")]
Positive = Annotated[float, Rule("finite and > 0", lambda v: 0 < v < math.inf)]
NotNegative = Annotated[float, Rule("finite and >= 0", lambda v: 0 <= v < math.inf)]
Seconds = Annotated[float, Rule("> 0 and at most 1e8", lambda v: 0 < v <= 1e8)]
Folder = Annotated[Path, Rule("an existing folder", Path.is_dir), arg(metavar="DIR")]
Folders = Annotated[
    tuple[Path, ...],
    Rule("one folder or more, such as runs", bool),
    Rule("existing folders", lambda v: all(map(Path.is_dir, v))),
]
Values = Annotated[
    tuple[str, ...],
    Rule(
        "finite numbers >= 0 with commas between them, such as 0.05,0.1",
        lambda v: all(map(_is_value, v)),
    ),
    arg(metavar="X,X,..."),
]
"""As the user types them; `numbers` reads them."""
Names = Annotated[tuple[str, ...], Rule("one name or more", lambda v: bool(v) and all(v))]


def numbers(values: tuple[str, ...]) -> list[float]:
    """What an option of `Values` holds: with commas, or one after the other."""
    return [float(part) for value in values for part in value.split(",")]


def _is_value(value: str) -> bool:
    try:
        return all(0 <= number < math.inf for number in numbers((value,)))
    except ValueError:
        return False


def options(kind: type[Kind]) -> type[Kind]:
    """A dataclass of options, whose help says nothing of a default that says nothing itself.

    Where an option that is not given means more than its value tells, its docstring says what.
    """
    for name, hint in get_type_hints(kind, include_extras=True).items():
        kind.__annotations__[name] = Annotated[_quick(hint), arg(help_behavior_hint=_default)]
    return kind


def _quick(hint: Any) -> Any:
    """The same type, in a form whose values tyro checks itself.

    For others it imports typeguard, and that asyncio: a quarter of the time that help takes.
    """
    parts = get_args(hint)
    if get_origin(hint) is Annotated:
        return Annotated[(_quick(parts[0]), *parts[1:])]
    if isinstance(hint, UnionType):
        return Union[parts]  # noqa: UP007  # a bar would make a UnionType again
    return Annotated[object, _several(parts[0])] if get_origin(hint) is tuple else hint


def _several(kind: Callable[[str], Any]) -> PrimitiveConstructorSpec[tuple[Any, ...]]:
    """How any number of values is read from the command line, and shown in help."""
    metavar = kind.__name__.upper()
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"[{metavar} [{metavar} ...]]",
        instance_from_str=lambda values: tuple(map(kind, values)),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: list(map(str, value)),
    )


def _default(label: str) -> str:
    return "" if label in ("None", "False", "''", "") else f"(default: {label})"


def require_rules(arguments: Any) -> None:
    """Raise unless every option's value is as its type says.

    Raises:
        WrongUsage: With the option, the rule and the value.
    """
    hints = get_type_hints(type(arguments), include_extras=True)
    for field in fields(arguments):
        value = getattr(arguments, field.name)
        if is_dataclass(value):
            require_rules(value)
            continue
        for rule in () if value is None else _rules(hints[field.name]):
            if not rule.holds(value):
                shown = _shown(value)
                option = option_name(field.name, hints[field.name])
                raise WrongUsage(f"{option} must be {rule.text}, got {shown}")


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_shown, value)) or "none"
    return repr(str(value) if isinstance(value, Path) else value)


def option_name(name: str, hint: Any) -> str:
    """As the user types it, or as help names it."""
    words = name.replace("_", "-")
    return words if POSITIONAL in getattr(hint, "__metadata__", ()) else f"--{words}"


def _rules(hint: Any) -> Iterator[Rule]:
    """All rules in a type, also in a part of it."""
    for part in get_args(hint):
        if isinstance(part, Rule):
            yield part
        else:
            yield from _rules(part)
