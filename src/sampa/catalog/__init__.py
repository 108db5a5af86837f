"""Every method, built the same way: `Name(base, <its hyper-parameters>, executor=None)`.

The functions are named like classes because users meet them where torch has classes; each returns a
`SharpnessAware` optimizer. `METHODS` maps command-line names to them. Defaults are those of the
SAMPa paper where it lists one, else the authors'; docs/methods says which.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sampa.batches import MicroBatches
from sampa.catalog.combinations import GSAM, WSAM, GradNormPenalty
from sampa.catalog.core import SAM, Base, OptGD, OptSAM, RandSAM, SAMdb, SAMPa
from sampa.catalog.efficient import AESAM, ESAM, MESA, RST, SAF, LookSAM
from sampa.catalog.perturbations import (
    ASAM,
    SAMON,
    AsyncSAM,
    BiSAM,
    FisherSAM,
    FriendlySAM,
    MicroBatchSAM,
    MomentumSAM,
    MultiStepSAM,
    OnNorms,
    SparseSAM,
    VaSSO,
)
from sampa.losses import ZeroOneBound
from sampa.optimizer import SharpnessAware
from sampa.pieces.directions import Average
from sampa.pieces.geometry import Adaptive

__all__ = [
    "AESAM",
    "ASAM",
    "ESAM",
    "GSAM",
    "MESA",
    "METHODS",
    "RST",
    "SAF",
    "SAM",
    "SAMON",
    "WSAM",
    "AsyncSAM",
    "Base",
    "BiSAM",
    "Factory",
    "FisherSAM",
    "FriendlySAM",
    "GradNormPenalty",
    "LookSAM",
    "MicroBatchSAM",
    "MomentumSAM",
    "MultiStepSAM",
    "OnNorms",
    "OptGD",
    "OptSAM",
    "RandSAM",
    "SAMPa",
    "SAMdb",
    "SparseSAM",
    "VaSSO",
]

Factory = Callable[..., SharpnessAware]

METHODS: dict[str, Factory] = {
    "base": Base,
    "sam": SAM,
    "sampa": SAMPa,
    "optgd": OptGD,
    "randsam": RandSAM,
    "optsam": OptSAM,
    "sam-db": SAMdb,
    "asam": ASAM,
    "msam": MicroBatchSAM,
    "sam-on": SAMON,
    "vasso": VaSSO,
    "bisam": BiSAM,
    "looksam": LookSAM,
    "ae-sam": AESAM,
    "saf": SAF,
    "mesa": MESA,
    "esam": ESAM,
    "rst": RST,
    "ssam-f": SparseSAM,
    "ssam-d": partial(SparseSAM, mask="dynamic"),
    "penalty": GradNormPenalty,
    "gsam": GSAM,
    "friendly-sam": FriendlySAM,
    "momentum-sam": MomentumSAM,
    "fisher-sam": FisherSAM,
    "wsam": WSAM,
    "async-sam": AsyncSAM,
    "multi-step-sam": MultiStepSAM,
    # SAMPa joined with another variant: its piece, ρ doubled as in the paper.
    "sampa-0": partial(SAMPa, rho=0.05, lam=0.0),
    "sampa+asam": partial(SAMPa, rho=1.0, geometry=Adaptive()),
    "sampa+msam": partial(SAMPa, micro_batches=MicroBatches()),
    "sampa+sam-on": partial(SAMPa, rho=1.0, geometry=OnNorms()),
    "sampa+vasso": partial(SAMPa, direction=Average()),
    "sampa+bisam": partial(SAMPa, ascent_loss=ZeroOneBound()),
}
