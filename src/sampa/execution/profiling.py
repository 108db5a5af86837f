"""Names for the parts of a step, which torch's profiler shows."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch.autograd import profiler

_NOTHING = nullcontext()


def marked(name: str) -> AbstractContextManager[Any]:
    """A part of a step: `record_function`, which takes its time, only where somebody looks."""
    watched = getattr(profiler, "_is_profiler_enabled", True)
    return profiler.record_function(f"sampa.{name}") if watched else _NOTHING
