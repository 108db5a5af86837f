"""What a sweep keeps the same for all models compared. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass

FLATNESS_FILE = "flatness.json"  # what a sweep leaves behind


@dataclass(frozen=True)
class SweepSettings:
    """What is the same for all models compared.

    Attributes:
        rho: Of plain sharpness, in l2.
        adaptive_rho: Of adaptive sharpness in l2 ...
        linf_rho: ... and in l-infinity.
        steps: Of an ascent.
        draws: Of averages and traces.
        products: Of a spectral density.
        span: Of random landscapes, in units of the weights' norms.
        points: Of a landscape, in each dimension.
        m: Samples that share a maximum in m-sharpness.
        batch_size: Samples of a batch.
        batches: How many: intervals are over these.
        seed: Of random directions.
    """

    rho: float = 0.1
    adaptive_rho: float = 0.5
    linf_rho: float = 0.005
    steps: int = 5
    draws: int = 5
    products: int = 30
    span: float = 0.5
    points: int = 15
    m: int = 32
    batch_size: int = 250
    batches: int = 4
    seed: int = 0
