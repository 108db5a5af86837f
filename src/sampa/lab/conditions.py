"""Under what a run is carried out: commit, versions, machine; and what of it has changed."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

NUMERICS = 3
"""Raised by every change after which the same run gives other numbers."""


@dataclass(frozen=True)
class Conditions:
    """Under what results were obtained: commit, versions, machine, and what else was noted.

    Attributes:
        values: As they stand in JSON: a group, such as versions, has values of its own. Where runs
            differ, a value is the list of all that occur.
    """

    values: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def now() -> Conditions:
        """Those of this process."""
        import torch  # reports read what others have written, and need not wait for it

        from sampa.lab.devices import device_name, find_device

        return Conditions(
            {
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
        )

    @staticmethod
    def from_json(values: Any, where: str = "conditions") -> Conditions:
        """Those that a file states.

        Raises:
            ValueError: If they are no JSON object.
        """
        if not isinstance(values, dict):
            raise ValueError(f"{where} must be a JSON object, got {type(values).__name__}")
        return Conditions(values)

    @staticmethod
    def merged(several: Iterable[Conditions]) -> Conditions:
        """Several as one; a name with different values has their list."""
        return Conditions(_merged([conditions.values for conditions in several]))

    def changed(self, values: Mapping[str, Any]) -> Conditions:
        """The same but for some values; those of a group that are not given stay."""
        before = self.values
        groups = {k: {**before.get(k, {}), **v} for k, v in values.items() if isinstance(v, dict)}
        return Conditions({**before, **values, **groups})

    def each(self, name: str) -> list[Any]:
        """The values that occur for a dotted name, such as versions.torch; none if it has none."""
        found = leaves(self.values)
        return _each(found[name]) if name in found else []

    def drift(self, now: Conditions) -> list[str]:
        """What differs now and may change the last bits of a result."""
        names = ("numerics", "threads", "versions.torch", "machine.processor", "machine.device")
        pairs = [(n, next(iter(self.each(n)), None), next(iter(now.each(n)), None)) for n in names]
        return [
            f"{name} is {here!r}, the run began with {then!r}: the result may differ from that of "
            "an uninterrupted run in the last bits"
            for name, then, here in pairs
            if here != then
        ]

    def require_committed(self, what: str, *, allow_dirty: bool) -> None:
        """Refuse to record what no commit holds.

        Args:
            what: Was made under them.
            allow_dirty: Whether the user wants it all the same.

        Raises:
            ValueError: Saying what to do.
        """
        dirty = [name for name in self.each("commit") if str(name).endswith(DIRTY)]
        if dirty and not allow_dirty:
            raise ValueError(
                f"a record must be of source that is committed, got {dirty[0]} for {what}; commit "
                "the changes and make it anew, or pass --allow-dirty: the record will say so"
            )

    def as_lines(self) -> list[str]:
        """A line for each value."""
        found = {k.replace(".", " "): v for k, v in leaves(self.values).items() if v != {}}
        return [f"{name}: {' and '.join(map(str, _each(v)))}" for name, v in found.items()]

    def as_markdown(self) -> str:
        """The lines as items of a list."""
        return "\n".join(f"- {line}" for line in self.as_lines())


def _merged(several: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in dict.fromkeys(name for c in several for name in c):
        parts = [c[name] for c in several if name in c]
        if isinstance(parts[0], dict):
            values[name] = _merged(parts)
        else:
            different = list(dict.fromkeys(value for part in parts for value in _each(part)))
            values[name] = different[0] if len(different) == 1 else different
    return values


def _each(value: Any) -> list[Any]:
    """The values of a merged condition: one, unless it is a list."""
    return value if isinstance(value, list) and value else [value]


def leaves(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by their full names, such as base.lr."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        deeper = isinstance(value, dict) and bool(value)
        found |= leaves(value, f"{prefix}{name}.") if deeper else {f"{prefix}{name}": value}
    return found


def flat(values: Mapping[str, Any]) -> dict[str, str]:
    """Nested values as one level of text: {"data": {"name": "digits"}} is {"data.name": ...}."""
    found = leaves(values).items()
    return {k: "none" if v is None or v == {} else str(v) for k, v in found}


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


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
