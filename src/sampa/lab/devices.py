"""Which device a command works on, and what suits that device."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn

from sampa.messages import WrongUsage

STREAMS = ("cuda", "xpu")  # where copies from pinned memory run beside other work
# Where convolutions are faster if the channels of a pixel are next to each other in memory.
CHANNELS_LAST = ("cpu", "cuda", "xpu")


def find_device(asked: str | None = None, local_rank: int | None = None) -> torch.device:
    """The device of a rank: the one asked for, else its accelerator, else the CPU.

    Args:
        asked: Such as cpu, cuda or cuda:1; without a number each rank takes its own.
        local_rank: Among the ranks of this machine; by default as the launcher says.

    Raises:
        WrongUsage: If this machine has no such device.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    found = "cpu" if accelerator is None else accelerator.type
    try:
        device = torch.device(asked or found)
    except RuntimeError as error:
        raise WrongUsage(
            f"--device must name a device such as cpu or cuda, got {asked!r}"
        ) from error
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type != found:
        raise WrongUsage(
            f"--device {asked} is not available: torch {torch.__version__} finds "
            f"{'no accelerator' if accelerator is None else found} on this machine; leave out "
            "--device to use what there is"
        )
    if asked is not None and ":" in asked:
        number = device.index
    else:
        number = int(os.environ.get("LOCAL_RANK", "0")) if local_rank is None else local_rank
    count = torch.accelerator.device_count()
    if number >= count:
        raise WrongUsage(
            f"{found}:{number} is not available: this machine has {count} {found} device(s) and "
            "every process needs one of its own; start fewer processes, or use --device cpu"
        )
    return torch.device(found, number)


def device_name(device: torch.device) -> str:
    """The maker's name of a device, such as NVIDIA A100-SXM4-40GB."""
    module = torch.get_device_module(device)
    return module.get_device_name(device) if hasattr(module, "get_device_name") else device.type


def has_streams(device: torch.device) -> bool:
    """Whether copies to the device can run beside its other work."""
    return device.type in STREAMS


def move_model(model: nn.Module, device: torch.device) -> None:
    """Move a model; weights of convolutions get the layout that suits the device."""
    model.to(device)
    if device.type in CHANNELS_LAST:
        untyped: Any = model  # torch's annotations of `to` leave memory_format out
        untyped.to(memory_format=torch.channels_last)


def in_suited_layout(tensor: Tensor, device: torch.device) -> Tensor:
    """Images with their channels last where that suits the device, anything else as it is."""
    if device.type in CHANNELS_LAST and tensor.ndim == 4:
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor
