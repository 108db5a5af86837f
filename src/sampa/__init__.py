"""Sharpness-aware training in PyTorch: SAM's generalization at about SGD's wall-clock."""

from sampa.batches import MicroBatches
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
from sampa.execution.distribute import distribute
from sampa.execution.executor import Executor
from sampa.execution.layers import ParameterInfo
from sampa.execution.parallel.executor import Parallel
from sampa.execution.serial import Serial
from sampa.losses import Loss, ZeroOneBound
from sampa.messages import Rho
from sampa.method import HELD, INCOMING, Batch, Context, Method, Move, Probe, Round, Rounds, Update
from sampa.methods.base import MethodDefaults
from sampa.optimizer import SharpnessAware
from sampa.options import Options
from sampa.pieces.directions import Average, Fresh, Residual
from sampa.pieces.geometry import Adaptive, FisherBall, Masked, Only, Sphere
from sampa.record import StepRecord
from sampa.vectors.vector import Vector, add, mix, scale

__version__ = "0.1.0"

__all__ = [
    "AESAM",
    "ASAM",
    "ESAM",
    "GSAM",
    "HELD",
    "INCOMING",
    "MESA",
    "METHODS",
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
    "Round",
    "Rounds",
    "SAMPa",
    "SAMdb",
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
    "mix",
    "scale",
]
