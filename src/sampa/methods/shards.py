"""mSAM: one perturbation per micro-batch (Andriushchenko, Flammarion, 2022; Behdin et al., 2023).

For each part B^j of the batch:  g_j = ∇f(x; B^j),  x̃_j = x + ρ g_j / ‖g_j‖,  h_j = ∇f(x̃_j; B^j)
x_{t+1} = ModelUpdate(x, Σ_j (|B^j| / |B|) h_j)

The parts are independent of each other, so both rounds have one probe per part. BatchNorm counts a
batch once, with its last part: ranks that share the parts then agree with one that has them all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sampa.batches import MicroBatches, shard, shares
from sampa.messages import Rho
from sampa.method import (
    ASCENT,
    PERTURBED,
    Context,
    MethodDefaults,
    Mode,
    Probe,
    Rounds,
    Samples,
    Update,
)
from sampa.pieces.geometry import Geometry, Sphere
from sampa.vectors.vector import weighted_sum


@dataclass(frozen=True)
class MicroBatchSAMMethod(MethodDefaults):
    """mSAM."""

    rho: Rho = 0.05
    micro_batches: MicroBatches = field(default_factory=MicroBatches)
    geometry: Geometry = field(default_factory=Sphere)

    @property
    def probes_per_round(self) -> int:
        return self.micro_batches.count or 1

    def rounds(self, context: Context, state: None) -> Rounds:
        size = context.batch_size()
        n = self.micro_batches.number(size)
        weights = shares(size, n)
        parts = [Samples(None if n == 1 else shard(j, n), weights[j]) for j in range(n)]
        gradients = yield tuple(  # g_j
            Probe(role=ASCENT, samples=part, mode=Mode(statistics=part is parts[-1]))
            for part in parts
        )
        perturbed = yield tuple(  # x̃_j = x + ρ g_j / ‖g_j‖
            Probe(self.geometry(context, g), role=PERTURBED, samples=part)
            for g, part in zip(gradients, parts, strict=True)
        )
        return Update(weighted_sum(perturbed, weights))  # Σ_j (|B^j| / |B|) h_j
