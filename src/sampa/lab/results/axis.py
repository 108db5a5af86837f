"""Axes: which values are shown, where on the drawing, and which of them have a tick."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

FREE_SIDES = 0.05  # of the range of values, left free on both sides
ROUND_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
LARGEST = 1e200  # what is beyond is not drawn, so that ranges stay finite
ROUND = 1e-9  # of a step: sums of floats
WITHOUT_EXPONENT = (1e-5, 1e6)  # numbers of this size are written without an exponent


@dataclass(frozen=True)
class Axis:
    """A range of values, in a range of the drawing.

    Attributes:
        low: The value at `start`; its logarithm if the axis is logarithmic.
        high: That at `end`.
    """

    low: float
    high: float
    start: float = 0.0
    end: float = 1.0
    is_log: bool = False

    def place(self, value: float) -> float:
        """Where a value is drawn; NaN for one that cannot be."""
        found = measured(value, self.is_log)
        return self.start + (found - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, most: int, *, whole: bool = False) -> dict[float, str]:
        """Round values with their texts, not many more than asked for."""
        return self._powers(most) if self.is_log else self._steps(most, whole)

    def _steps(self, most: int, whole: bool) -> dict[float, str]:
        step = _step((self.high - self.low) / most, whole)
        first, last = math.ceil(self.low / step - ROUND), math.floor(self.high / step + ROUND)
        values = [i * step for i in range(first, last + 1)]
        largest = max(map(abs, values), default=0.0)
        if values and (largest >= WITHOUT_EXPONENT[1] or largest < WITHOUT_EXPONENT[0]):
            digits = max(1, math.ceil(math.log10(largest / step)) + 2) if largest else 1
            return {value: _signed(f"{value:.{digits}g}") for value in values}
        digits = next(d for d in range(20) if abs(round(step, d) - step) < ROUND * step or d == 19)
        return {value: _signed(f"{value:.{digits}f}") for value in values}

    def _powers(self, most: int) -> dict[float, str]:
        """Powers of ten, or 1, 2 and 5 times them, or steps, as the range is short."""
        first, last = math.floor(self.low), math.ceil(self.high)
        every = max(1, math.ceil((last - first) / most))
        decades = [10.0**i for i in range(first, last + 1) if i % every == 0]
        finer = [m * 10.0**i for i in range(first, last + 1) for m in (1, 2, 5)]
        for values in (decades, finer):
            inside = [v for v in values if self.low <= measured(v, True) <= self.high]
            if len(inside) > 2:
                return {value: f"{value:g}" for value in inside}
        return Axis(10**self.low, 10**self.high)._steps(most, whole=False)


def axis_of(
    values: Iterable[float],
    *,
    is_log: bool = False,
    margin: float = FREE_SIDES,
    floor: bool = False,
) -> Axis:
    """The axis that shows all values that can be drawn.

    Args:
        values: What is shown.
        is_log: Whether it is logarithmic.
        margin: What is left free on both sides, of the range.
        floor: Whether it begins at 0 where no value is below.
    """
    found = [m for value in values if math.isfinite(m := measured(value, is_log))]
    low, high = (min(found), max(found)) if found else (0.0, 1.0)
    low = min(low, 0.0) if floor else low
    if high - low <= 1e-12 * max(abs(low), abs(high)):  # one value: it is in the middle
        more = 0.05 * max(abs(low), abs(high)) or 0.05
        low, high = (low if floor and low == 0.0 else low - more), high + more
    free = margin * (high - low)
    return Axis(low if floor and low == 0.0 else low - free, high + free, is_log=is_log)


def measured(value: float, is_log: bool) -> float:
    """A value along an axis; NaN for one that cannot be drawn."""
    if not abs(value) <= LARGEST or (is_log and value <= 0):
        return math.nan
    return math.log10(value) if is_log else value


def _step(least: float, whole: bool) -> float:
    """The smallest round step that is not less."""
    power = 10.0 ** math.floor(math.log10(least))
    steps = [s * power for s in ROUND_STEPS if not whole or (s * power) % 1 == 0]
    return next((step for step in steps if step >= least * (1 - ROUND)), max(power, 1.0))


def _signed(text: str) -> str:
    return text.replace("-", "−")
