"""Loss scaling for half precision that understands several probes in one step.

torch's GradScaler refuses to unscale twice in a step. Here it only scales the losses and keeps the
scale: gradients are unscaled as each probe is answered, and one decision about the whole step is
handed back through the scaler's public interface.
"""

from __future__ import annotations

import math

import torch
from torch.amp.grad_scaler import GradScaler


def report(scaler: GradScaler, *, overflow: bool, device: torch.device) -> None:
    """Let the scaler grow or shrink its scale, from one decision for all probes of the step."""
    flag = torch.nn.Parameter(torch.zeros(1, device=device))
    flag.grad = torch.full_like(flag, math.inf if overflow else 0.0)
    scaler.unscale_(torch.optim.SGD([flag], lr=0.0))
    scaler.update()
