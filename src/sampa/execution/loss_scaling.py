"""Loss scaling for half precision that understands several probes in one step.

torch's GradScaler refuses to unscale twice in a step. Here it only scales the losses and keeps the
scale: gradients are unscaled as each probe is answered, and one decision about the whole step is
handed back through the scaler's public interface.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from sampa.torch_private import scale_on_device
from sampa.vectors.reductions import precise


def unscaling(scaler: GradScaler) -> Tensor | None:
    """The factor that undoes the scale, on its device; None if the scaler is disabled."""
    scale = scale_on_device(scaler) if scaler.is_enabled() else None
    return None if scale is None else scale.to(precise(scale.device)).reciprocal()


def report(scaler: GradScaler, is_bad: Tensor) -> None:
    """Let the scaler grow or shrink its scale, from one decision for all probes of the step."""
    flag = torch.nn.Parameter(torch.zeros(1, device=is_bad.device))
    flag.grad = torch.where(is_bad, math.inf, torch.zeros_like(flag))
    scaler.unscale_(torch.optim.SGD([flag], lr=0.0))
    scaler.update()
