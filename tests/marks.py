"""Which members of a family run in `make test`, and which in `make test-slow` only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def rest_is_slow(family: Iterable[Any], *representatives: Any) -> list[Any]:
    """Values for `parametrize`: all of the family, marked slow but for its representatives."""
    members = list(family)
    assert all(r in members for r in representatives)
    return [m if m in representatives else pytest.param(m, marks=pytest.mark.slow) for m in members]
