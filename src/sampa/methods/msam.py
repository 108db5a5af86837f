"""mSAM: one perturbation per micro-batch (Andriushchenko, Flammarion, 2022; Behdin et al., 2023).

For each part B^j of the batch:  g_j = ∇f(x; B^j),  x̃_j = x + ρ g_j / ‖g_j‖,  h_j = ∇f(x̃_j; B^j)
x_{t+1} = ModelUpdate(x, Σ_j (|B^j| / |B|) h_j)

The parts are independent of each other, so both rounds have one probe per part. BatchNorm counts a
batch once, with its last part: ranks that share the parts then agree with one that has them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sampa.messages import refuses_other_forms, require
from sampa.method import (
    ASCENT,
    PERTURBED,
    Context,
    MethodDefaults,
    Mode,
    Probe,
    Rho,
    Rounds,
    Update,
)
from sampa.optimizer import Bases, SharpnessAware
from sampa.pieces.geometry import Sphere
from sampa.pieces.micro_batches import MicroBatches, cut
from sampa.vectors.vector import weighted_sum


@dataclass(frozen=True, kw_only=True)
class MicroBatchSAMMethod(MethodDefaults):
    """mSAM."""

    micro_batches: MicroBatches

    needs_loss_fn = True

    @property
    def probes_per_round(self) -> int:
        return self.micro_batches.count or 1

    def rounds(self, context: Context, state: None) -> Rounds:
        shares = self.micro_batches.shares(context.batch_size())
        parts = cut(shares)
        gradients = yield tuple(  # g_j
            Probe(role=ASCENT, samples=part, mode=Mode(statistics=part is parts[-1]))
            for part in parts
        )
        perturbed = yield tuple(  # x̃_j = x + ρ g_j / ‖g_j‖
            Probe(Sphere()(context, g), role=PERTURBED, samples=part)
            for g, part in zip(gradients, parts, strict=True)
        )
        return Update(weighted_sum(perturbed, shares))  # Σ_j (|B^j| / |B|) h_j


@refuses_other_forms
def MicroBatchSAM(
    base: Bases,
    rho: Rho = 0.05,
    micro_batch_size: int = MicroBatches.size,
    *,
    num_shards: int | None = MicroBatches.count,
    **options: Any,
) -> SharpnessAware:
    """mSAM: one perturbation per micro-batch, given by their size or by their number.

    Defaults: SAMPa paper: micro-batches of 32.
    """
    require("micro_batch_size", micro_batch_size, micro_batch_size >= 1, ">= 1")
    require("num_shards", num_shards, num_shards is None or num_shards >= 1, ">= 1 or None")
    cuts = MicroBatches(size=micro_batch_size, count=num_shards)
    return SharpnessAware(base, MicroBatchSAMMethod(rho, micro_batches=cuts), **options)
