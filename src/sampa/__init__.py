"""Sharpness-aware training in PyTorch: SAM's generalization at about SGD's wall-clock."""

from sampa.catalog import METHODS, SAM, Base, OptGD, OptSAM, RandSAM, SAMdb, SAMPa
from sampa.execution.executor import Executor
from sampa.execution.parallel import Parallel, distribute
from sampa.execution.serial import Serial
from sampa.optimizer import Options, SharpnessAware
from sampa.probes import HELD, INCOMING, Batch, Context, Method, Move, Probe, Round, Update
from sampa.record import StepRecord
from sampa.vectors import Vector

__all__ = [
    "HELD",
    "INCOMING",
    "METHODS",
    "SAM",
    "Base",
    "Batch",
    "Context",
    "Executor",
    "Method",
    "Move",
    "OptGD",
    "OptSAM",
    "Options",
    "Parallel",
    "Probe",
    "RandSAM",
    "Round",
    "SAMPa",
    "SAMdb",
    "Serial",
    "SharpnessAware",
    "StepRecord",
    "Update",
    "Vector",
    "distribute",
]

__version__ = "0.1.0"
