"""Sharpness-aware training in PyTorch: SAM's generalization at about SGD's wall-clock."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sampa.catalog import (
        AESAM,
        ASAM,
        ESAM,
        GSAM,
        MESA,
        METHODS,
        RST,
        SAF,
        SAM,
        SAMON,
        WSAM,
        AsyncSAM,
        Base,
        BiSAM,
        FisherSAM,
        FriendlySAM,
        GradNormPenalty,
        LookSAM,
        MicroBatchSAM,
        MomentumSAM,
        MultiStepSAM,
        OnNorms,
        OptGD,
        OptSAM,
        RandSAM,
        SAMdb,
        SAMPa,
        SparseSAM,
        VaSSO,
    )
    from sampa.execution.distribute import distribute, mesh
    from sampa.execution.executor import Executor
    from sampa.execution.parallel.executor import Parallel
    from sampa.execution.serial import Serial
    from sampa.loss import Closure, Loss
    from sampa.method import (
        ASCENT,
        CLEAN,
        HELD,
        INCOMING,
        PERTURBED,
        Batch,
        Context,
        Method,
        MethodDefaults,
        Mode,
        Move,
        ParameterInfo,
        Probe,
        Rho,
        Role,
        Round,
        Rounds,
        Samples,
        Update,
    )
    from sampa.optimizer import SharpnessAware
    from sampa.options import Options
    from sampa.pieces.directions import Average, Fresh, Residual
    from sampa.pieces.geometry import Adaptive, FisherBall, Masked, Only, Sphere
    from sampa.pieces.losses import ZeroOneBound
    from sampa.pieces.micro_batches import MicroBatches
    from sampa.record import StepRecord
    from sampa.vectors.vector import Vector, add, mix, scale

__version__ = "0.1.0"

__all__ = [
    "AESAM",
    "ASAM",
    "ASCENT",
    "CLEAN",
    "ESAM",
    "GSAM",
    "HELD",
    "INCOMING",
    "MESA",
    "METHODS",
    "PERTURBED",
    "RST",
    "SAF",
    "SAM",
    "SAMON",
    "WSAM",
    "Adaptive",
    "AsyncSAM",
    "Average",
    "Base",
    "Batch",
    "BiSAM",
    "Closure",
    "Context",
    "Executor",
    "FisherBall",
    "FisherSAM",
    "Fresh",
    "FriendlySAM",
    "GradNormPenalty",
    "LookSAM",
    "Loss",
    "Masked",
    "Method",
    "MethodDefaults",
    "MicroBatchSAM",
    "MicroBatches",
    "Mode",
    "MomentumSAM",
    "Move",
    "MultiStepSAM",
    "OnNorms",
    "Only",
    "OptGD",
    "OptSAM",
    "Options",
    "Parallel",
    "ParameterInfo",
    "Probe",
    "RandSAM",
    "Residual",
    "Rho",
    "Role",
    "Round",
    "Rounds",
    "SAMPa",
    "SAMdb",
    "Samples",
    "Serial",
    "SharpnessAware",
    "SparseSAM",
    "Sphere",
    "StepRecord",
    "Update",
    "VaSSO",
    "Vector",
    "ZeroOneBound",
    "add",
    "distribute",
    "mesh",
    "mix",
    "scale",
]

# Where each name is defined. It is imported on first use: torch takes two seconds to load, and
# `sampa --help` does not need it.
_NAMES = {
    "sampa.catalog": (
        "AESAM ASAM ESAM GSAM MESA METHODS RST SAF SAM SAMON WSAM AsyncSAM Base BiSAM "
        "FisherSAM FriendlySAM GradNormPenalty LookSAM MicroBatchSAM MomentumSAM MultiStepSAM "
        "OnNorms OptGD OptSAM RandSAM SAMdb SAMPa SparseSAM VaSSO"
    ),
    "sampa.execution.distribute": "distribute mesh",
    "sampa.execution.executor": "Executor",
    "sampa.execution.parallel.executor": "Parallel",
    "sampa.execution.serial": "Serial",
    "sampa.loss": "Closure Loss",
    "sampa.method": (
        "ASCENT CLEAN HELD INCOMING PERTURBED Batch Context Method MethodDefaults Mode Move "
        "ParameterInfo Probe Rho Role Round Rounds Samples Update"
    ),
    "sampa.optimizer": "SharpnessAware",
    "sampa.options": "Options",
    "sampa.pieces.directions": "Average Fresh Residual",
    "sampa.pieces.geometry": "Adaptive FisherBall Masked Only Sphere",
    "sampa.pieces.losses": "ZeroOneBound",
    "sampa.pieces.micro_batches": "MicroBatches",
    "sampa.record": "StepRecord",
    "sampa.vectors.vector": "Vector add mix scale",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value  # the next use does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
