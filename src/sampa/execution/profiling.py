"""Names for the parts of a step, which torch's profiler shows.

`torch.profiler.record_function` takes microseconds also where no profiler runs; torch's own
compiler marks its parts with this class, which does not.
"""

from __future__ import annotations

from torch._C._profiler import _RecordFunctionFast

MOVE, GRADIENT, RESTORE, EXCHANGE, UPDATE = (
    _RecordFunctionFast(f"sampa.{name}")
    for name in ("move", "gradient", "restore", "exchange", "update")
)
