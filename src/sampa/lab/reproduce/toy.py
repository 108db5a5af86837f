"""The paper's toy figure: f(x) = ‖x‖² with a fixed ρ, which not every method survives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

import sampa
from sampa.lab.conditions import Conditions
from sampa.lab.reproduce.request import Request
from sampa.lab.results.charts import Chart, Line, over_seeds
from sampa.lab.results.outcome import Entry, Outcome

LR = RHO = 0.1
TOY_DIMENSIONS = 2  # in one dimension a random direction is a coin
TOY_STEPS, TAIL = 200, 100
PERIOD, FLOOR = 4, 1e-4  # of the picture
NO_BATCH = torch.zeros(1)  # the problem has no data
TOY_METHODS: dict[str, Callable[..., sampa.SharpnessAware]] = {
    "SAM": partial(sampa.SAM, rho=RHO),
    "RandSAM": partial(sampa.RandSAM, rho=RHO),
    "OptSAM": partial(sampa.OptSAM, rho=RHO),
    "SAMPa-0": partial(sampa.SAMPa, rho=RHO, lam=0.0),
    "SAMPa-0.2": partial(sampa.SAMPa, rho=RHO, lam=0.2),
    "SAMPa-1 (OptGD)": partial(sampa.SAMPa, rho=RHO, lam=1.0),
}


class Square(nn.Module):
    """f(x) = ‖x‖², from x_0 of length 1."""

    def __init__(self) -> None:
        super().__init__()
        start = torch.ones(TOY_DIMENSIONS, dtype=torch.float64)
        self.x = nn.Parameter(start / start.norm())

    def forward(self, batch: Tensor) -> Tensor:
        return self.x.square().sum()


def distances(make: Callable[..., sampa.SharpnessAware], seed: int) -> list[float]:
    """‖x_t‖ for t = 0, 1, ..., TOY_STEPS."""
    model = Square()
    base = torch.optim.SGD(model.parameters(), lr=LR)
    optimizer = make(base, perturb_eps=0.0, seed=seed)
    path = [model.x.detach().norm().item()]
    while len(path) <= TOY_STEPS:
        optimizer.step(model, NO_BATCH)
        assert optimizer.last is not None
        if optimizer.last.updated:
            path.append(model.x.detach().norm().item())
    return path


def toy_figure(blank: Outcome, request: Request) -> Outcome:
    """All methods from the same start; only RandSAM depends on the seed."""
    seeds = range(request.seeds or 3)
    paths = {name: [distances(make, seed) for seed in seeds] for name, make in TOY_METHODS.items()}
    row = "distance to the minimum"
    return replace(
        blank,
        about=f"f(x) = ‖x‖² in {TOY_DIMENSIONS} dimensions, ‖x_0‖ = 1, η = ρ = {LR:g}, "
        f"{TOY_STEPS} updates",
        unit=f"root mean square of ‖x_t‖ over the last {TAIL} updates, "
        "mean ± standard deviation over seeds",
        decimals=4,
        entries=tuple(
            Entry(row, name, dict(zip(seeds, map(_rms, found), strict=True)))
            for name, found in paths.items()
        ),
        pairs=tuple((name, "SAM") for name in TOY_METHODS if name != "SAM"),
        charts=(_chart(paths),),
        conditions=Conditions.now(),
    )


def _rms(path: list[float]) -> float:
    return math.sqrt(sum(x * x for x in path[-TAIL:]) / TAIL)


def _chart(paths: dict[str, list[list[float]]]) -> Chart:
    """Mean over seeds of how far a method strays; cycles have a period of two or four."""
    lines = [_line(name, [_strays(path) for path in found]) for name, found in paths.items()]
    note = (
        f"Largest ‖x‖ of the last {PERIOD} updates, since most methods end in a cycle; mean over "
        f"seeds, and the band from the lowest to the highest. Drawn down to {FLOOR:g}."
    )
    return Chart("fig-toy", "Distance to the minimum", "update", "‖x‖", lines, note, log_y=True)


def _strays(path: list[float]) -> list[float]:
    return [max(FLOOR, *path[max(0, t + 1 - PERIOD) : t + 1]) for t in range(len(path))]


def _line(name: str, found: list[list[float]]) -> Line:
    line = over_seeds(
        name, [float(t) for t in range(len(found[0]))], list(zip(*found, strict=True))
    )
    return Line(name, line.x, line.y) if line.low == line.high else line
