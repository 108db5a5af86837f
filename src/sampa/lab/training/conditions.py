"""Under what a run is carried out: commit, versions, machine; and what of it has changed."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

NUMERICS = 2
"""Raised by every change after which the same run gives other numbers."""


def conditions() -> dict[str, Any]:
    """Under what a result was obtained: commit, versions, machine."""
    import torch  # reports read what others have written, and need not wait for it

    from sampa.lab.devices import device_name, find_device

    return {
        "commit": commit(),
        "numerics": NUMERICS,
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("sampa", "torch", "numpy")},
        },
        "machine": {
            "system": platform.system(),
            "processor": processor(),
            "cores": os.cpu_count(),
            "device": device_name(find_device(local_rank=0)),
        },
        "threads": torch.get_num_threads(),
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
    }


def drift(before: Any, now: dict[str, Any]) -> list[str]:
    """What differs now and may change the last bits of a result."""
    began = leaves(before if isinstance(before, dict) else {})
    then, here = {name: each(value)[0] for name, value in began.items()}, leaves(now)
    names = ("numerics", "threads", "versions.torch", "machine.processor", "machine.device")
    return [
        f"{name} is {here.get(name)!r}, the run began with {then.get(name)!r}: the result may "
        "differ from that of an uninterrupted run in the last bits"
        for name in names
        if here.get(name) != then.get(name)
    ]


def leaves(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their full names, such as base.lr."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        deeper = isinstance(value, dict) and bool(value)
        found |= leaves(value, f"{prefix}{name}.") if deeper else {f"{prefix}{name}": value}
    return found


def flat(values: dict[str, Any]) -> dict[str, str]:
    """Nested values as one level of text: {"data": {"name": "digits"}} is {"data.name": ...}."""
    found = leaves(values).items()
    return {k: "none" if v is None or v == {} else str(v) for k, v in found}


def merged(conditions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several conditions as one; a name with different values has their list."""
    values: dict[str, Any] = {}
    for name in dict.fromkeys(name for c in conditions for name in c):
        parts = [c[name] for c in conditions if name in c]
        if isinstance(parts[0], dict):
            values[name] = merged(parts)
        else:
            different = list(dict.fromkeys(value for part in parts for value in each(part)))
            values[name] = different[0] if len(different) == 1 else different
    return values


def each(value: Any) -> list[Any]:
    """The values of a merged condition: one, unless it is a list."""
    return value if isinstance(value, list) and value else [value]


def condition_list(conditions: dict[str, Any]) -> str:
    """Conditions, merged or not, as the items of a list in Markdown."""
    found = {k.replace(".", " "): v for k, v in leaves(conditions).items() if v != {}}
    return "\n".join(f"- {name}: {' and '.join(map(str, each(v)))}" for name, v in found.items())


CODE = (":/src", ":/tools", ":/tests", ":/pyproject.toml")  # what a result depends on


@cache
def commit() -> str | None:
    """The commit of the source that runs, with a mark if it was changed; None outside a clone."""
    try:
        name = _git("describe", "--always", "--abbrev=12", "--exclude", "*")
        return f"{name}{DIRTY}" if _git("status", "--porcelain", "--", *CODE) else name
    except (OSError, subprocess.CalledProcessError):
        return None


DIRTY = "-dirty"


def _git(*arguments: str) -> str:
    here = Path(__file__).parent
    found = subprocess.run(
        ["git", *arguments], cwd=here, capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def require_committed(found: dict[str, Any], what: str, *, allow_dirty: bool) -> None:
    """Refuse to record what no commit holds.

    Args:
        found: Conditions, merged or not.
        what: Was made under them.
        allow_dirty: Whether the user wants it all the same.

    Raises:
        ValueError: Saying what to do.
    """
    dirty = [name for name in each(found.get("commit")) if str(name).endswith(DIRTY)]
    if dirty and not allow_dirty:
        raise ValueError(
            f"a record must be of source that is committed, got {dirty[0]} for {what}; commit the "
            "changes and make it anew, or pass --allow-dirty: the record will say so"
        )


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
