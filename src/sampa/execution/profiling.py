"""Names for the parts of a step, which torch's profiler shows.

`torch.profiler.record_function` takes microseconds also where no profiler runs; torch's own
compiler marks its parts with this class, which does not.
"""

from __future__ import annotations

from sampa.torch_private import RecordFunction

MOVE, GRADIENT, RESTORE, EXCHANGE, UPDATE = (
    RecordFunction(f"sampa.{name}")
    for name in ("move", "gradient", "restore", "exchange", "update")
)
