"""A generator and a discriminator with an optimizer each, both sharpness-aware.

python examples/gan.py

Each `step` moves the weights of its own optimizer alone and differentiates with respect to them
alone; the other network is part of the loss. The data are points of a ring.
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sampa


def ring(count: int) -> Tensor:
    """Points at a distance of 1 from the center, blurred a little."""
    angle = 2 * math.pi * torch.rand(count)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(count, 2)


def network(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))
    )


def sharpness_aware(model: nn.Module) -> sampa.SharpnessAware:
    base = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.5, 0.999))
    return sampa.SAM(base, rho=0.01, executor=sampa.Serial(model))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    torch.manual_seed(0)
    generator, discriminator = network(2, 2), network(2, 1)
    g_optimizer, d_optimizer = sharpness_aware(generator), sharpness_aware(discriminator)

    def d_loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        real, noise = batch
        fake = generator(noise).detach()
        return F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake)).mean()

    def g_loss(noise: Tensor) -> Tensor:
        return F.softplus(-discriminator(generator(noise))).mean()

    for _ in range(parser.parse_args().steps):
        d_optimizer.step(d_loss, (ring(128), torch.randn(128, 2)))
        g_optimizer.step(g_loss, torch.randn(128, 2))
    with torch.no_grad():
        radius = generator(torch.randn(2000, 2)).norm(dim=1)
    near = ((radius - 1).abs() < 0.25).double().mean().item()
    print(f"mean radius {radius.mean().item():.2f}, near the ring {100 * near:.1f} %")


if __name__ == "__main__":
    main()
