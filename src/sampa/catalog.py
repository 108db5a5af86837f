"""Every method by name: `METHODS[name](base, <its hyper-parameters>, **options)`.

Each factory returns a `SharpnessAware` optimizer. Defaults are those of the SAMPa paper where it
lists one, else the authors'; docs/methods says which.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from sampa.messages import unknown
from sampa.methods.ae_sam import AESAM
from sampa.methods.asam import ASAM
from sampa.methods.async_sam import AsyncSAM
from sampa.methods.base import Base
from sampa.methods.bisam import BiSAM
from sampa.methods.esam import ESAM
from sampa.methods.fisher_sam import FisherSAM
from sampa.methods.friendly_sam import FriendlySAM
from sampa.methods.gsam import GSAM
from sampa.methods.looksam import LookSAM
from sampa.methods.mesa import MESA
from sampa.methods.momentum_sam import MomentumSAM
from sampa.methods.msam import MicroBatchSAM
from sampa.methods.multi_step_sam import MultiStepSAM
from sampa.methods.optgd import OptGD
from sampa.methods.optsam import OptSAM
from sampa.methods.penalty import GradNormPenalty
from sampa.methods.randsam import RandSAM
from sampa.methods.rst import RST
from sampa.methods.saf import SAF
from sampa.methods.sam import SAM
from sampa.methods.sam_db import SAMdb
from sampa.methods.sam_on import SAMON, OnNorms
from sampa.methods.sampa import SAMPa
from sampa.methods.ssam import SparseSAM
from sampa.methods.vasso import VaSSO
from sampa.methods.wsam import WSAM
from sampa.names import ALIASES, lambda_in
from sampa.optimizer import SharpnessAware
from sampa.pieces.directions import Average
from sampa.pieces.geometry import Adaptive
from sampa.pieces.losses import ZeroOneBound
from sampa.pieces.micro_batches import MicroBatches

Factory = Callable[..., SharpnessAware]


class OtherDefaults(partial[SharpnessAware]):
    """A factory with other defaults, any of which may be given by position too."""

    def __call__(self, /, *positional: Any, **options: Any) -> SharpnessAware:
        given = list(inspect.signature(self.func).parameters)[: len(positional)]
        defaults = {name: value for name, value in self.keywords.items() if name not in given}
        return self.func(*positional, **{**defaults, **options})


def variant(factory: Factory, summary: str, source: str, **choices: Any) -> Factory:
    """A factory with other defaults, and its own words about them."""
    chosen = OtherDefaults(factory, **choices)
    chosen.__doc__ = f"{summary}\n\nDefaults: {source}."
    return chosen


def joined(other: str, how: str, **choices: Any) -> Factory:
    """SAMPa joined with another variant: its piece, ρ doubled as in the paper."""
    source = f"SAMPa paper: rho doubled, the rest as {other}"
    return variant(SAMPa, f"SAMPa joined with {other}: {how}.", source, **choices)


class Catalog(dict[str, Factory]):
    """A dictionary that names the nearest method where one is missing."""

    def __missing__(self, name: str) -> Factory:
        raise KeyError(unknown("method", name, self))


_METHODS: dict[str, Factory] = {
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
    "ssam-f": variant(
        SparseSAM,
        "SSAM: SAM's perturbation where the Fisher information is large.",
        "authors' published runs: sparsity 0.5, 16 samples",
    ),
    "ssam-d": variant(
        SparseSAM,
        "SSAM: SAM's perturbation on a sparse mask that drops and grows entries.",
        "authors' published runs: sparsity 0.5, drop rate 0.5",
        mask="dynamic",
    ),
    "penalty": GradNormPenalty,
    "gsam": GSAM,
    "friendly-sam": FriendlySAM,
    "momentum-sam": MomentumSAM,
    "fisher-sam": FisherSAM,
    "wsam": WSAM,
    "async-sam": AsyncSAM,
    "multi-step-sam": MultiStepSAM,
    "sampa-0": variant(
        SAMPa,
        "SAMPa with λ = 0, the case with a convergence proof.",
        "SAMPa paper, CIFAR-10: SAM's rho at lambda 0",
        rho=0.05,
        lam=0.0,
    ),
    "sampa+asam": joined(
        "ASAM", "the perturbation scaled by the weights", rho=1.0, geometry=Adaptive()
    ),
    "sampa+msam": joined("mSAM", "one perturbation per micro-batch", micro_batches=MicroBatches()),
    "sampa+sam-on": joined(
        "SAM-ON", "normalization layers are perturbed", rho=1.0, geometry=OnNorms()
    ),
    "sampa+vasso": joined("VaSSO", "along a moving average of gradients", direction=Average()),
    "sampa+bisam": joined("BiSAM", "climbs a bound of the 0-1 loss", ascent_loss=ZeroOneBound()),
}

METHODS: dict[str, Factory] = Catalog(_METHODS)


def find_method(name: str) -> Factory:
    """The factory behind a name that people type; `sampa-0.1` is SAMPa with that λ.

    Raises:
        ValueError: Naming the nearest methods.
    """
    known = METHODS.get(ALIASES.get(name, name))
    if known is not None:
        return known
    lam = lambda_in(name)
    if lam is not None:
        return OtherDefaults(METHODS["sampa"], lam=lam)
    raise ValueError(unknown("method", name, [*METHODS, *ALIASES]))
