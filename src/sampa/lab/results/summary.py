"""Numbers in short: mean, deviation and Student's t interval; or median and quartiles."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEVEL = 0.95  # of confidence


@dataclass(frozen=True)
class Summary:
    """Some numbers in short: n, mean, standard deviation (NaN for a single one)."""

    n: int
    mean: float
    std: float

    @property
    def standard_error(self) -> float:
        return self.std / math.sqrt(self.n)

    @property
    def margin(self) -> float:
        """How far the interval of the mean reaches to either side; NaN for a single number.

        From Student's t: at n = 3 it is 4.3 standard errors, not 2.
        """
        if self.n < 2:
            return math.nan
        from scipy.special import stdtrit  # slow to import, scipy.stats more so

        return float(stdtrit(self.n - 1, (1 + LEVEL) / 2)) * self.standard_error

    @property
    def is_sure(self) -> bool:
        """Whether 0 is outside of the interval; of paired differences this is the paired t test."""
        return is_beyond_chance(self.mean, self.margin)

    @property
    def p_value(self) -> float:
        """Of the two-sided t test that the mean is 0; 1 for a single number: it tells nothing."""
        if self.n < 2 or self.mean == 0:
            return 1.0
        from scipy.special import stdtr

        t = math.inf if self.std == 0 else abs(self.mean) / self.standard_error
        return 2 * float(stdtr(self.n - 1, -t))

    def as_json(self) -> dict[str, float | None]:
        """As files hold it: None for what a single number does not have."""
        several = self.n > 1
        return {
            "n": self.n,
            "mean": self.mean,
            "std": self.std if several else None,
            "standard_error": self.standard_error if several else None,
            "margin": self.margin if several else None,
        }

    def __str__(self) -> str:
        return plus_minus(self.mean, self.std)


def is_beyond_chance(mean: float, margin: float) -> bool:
    """Whether an interval leaves 0 out; a margin that is not known tells nothing."""
    return mean != 0 and abs(mean) >= margin


def holm(p_values: Sequence[float]) -> list[float]:
    """p values of a family of tests, so that one error in the whole family is as rare as in one.

    Holm's step-down method: the smallest is multiplied by the number of tests, the next by one
    less, and so on; none falls below the one before.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def summarize(values: Sequence[float]) -> Summary:
    """Mean and sample standard deviation."""
    std = statistics.stdev(values) if len(values) > 1 else math.nan
    return Summary(len(values), statistics.fmean(values), std)


def paired(values: Mapping[int, float], baseline: Mapping[int, float]) -> Summary | None:
    """The differences on the seeds that both have; None if there is none."""
    common = sorted(values.keys() & baseline.keys())
    return summarize([values[seed] - baseline[seed] for seed in common]) if common else None


@dataclass(frozen=True)
class Quartiles:
    """Some numbers in short, where single ones may be far off: their median and quartiles."""

    median: float
    low: float
    high: float


def quartiles(values: Sequence[float]) -> Quartiles:
    """Between the lowest and the highest of the values; of a single one, itself."""
    if len(values) == 1:
        return Quartiles(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Quartiles(median, low, high)


def plus_minus(
    value: float, error: float | None, decimals: int = 2, *, signed: bool = False
) -> str:
    """A number with its deviation or margin, where that is known."""
    text = f"{value:{'+' if signed else ''}.{decimals}f}"
    known = error is not None and not math.isnan(error)
    return f"{text} ± {error:.{decimals}f}" if known else text
