"""A method of your own in about thirty lines: SAMPa that climbs along a blend of its two gradients.

d_t     = (1−β) g_t + β ∇f(x̃_{t−1}; B_{t−1})       with g_t = ∇f(y_t; B_t); SAMPa climbs along g_t
x̃_t     = x_t + ρ d_t / ‖d_t‖
y_{t+1} = ModelUpdate_{m_t}(x_t, g_t)
x_{t+1} = ModelUpdate_{m_t}(x_t, (1−λ) ∇f(x̃_t; B_t) + λ g_{t+1})

The two gradients do not depend on each other: one round, which two devices can share without
another line. At β = 0 the method is SAMPa; the script checks that bit for bit.

    python examples/own_method.py
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import sampa
from sampa import (
    HELD,
    INCOMING,
    PERTURBED,
    Context,
    MethodDefaults,
    Probe,
    Rounds,
    Sphere,
    Update,
    Vector,
)


@dataclass(frozen=True)
class Blended:
    g: Vector | None = None  # g_t
    d: Vector | None = None  # d_t; state_dict saves both


@dataclass(frozen=True)
class BlendedSAMPa(MethodDefaults):
    rho: float = 0.1  # the fields are the hyper-parameters
    lam: float = 0.2
    beta: float = 0.3
    holds_batch = True  # ∇f(x̃_t) is taken on the batch of the call before
    probes_per_round = 2

    def initial_state(self) -> Blended:
        return Blended()

    def rounds(self, context: Context, state: Blended) -> Rounds:
        if state.g is None or state.d is None:
            (g_0,) = yield (Probe(),)  # at x_0; an Update without a gradient makes no step
            return Update(None, Blended(g_0, g_0))
        g_tilde, g_next = yield (
            Probe(Sphere()(context, state.d), HELD, PERTURBED),  # x̃_t on B_t
            Probe(context.base.lookahead(state.g), INCOMING),  # y_{t+1} on B_{t+1}
        )
        d = sampa.mix(g_next, g_tilde, self.beta)  # d_{t+1} = (1−β) g_{t+1} + β ∇f(x̃_t; B_t)
        return Update(sampa.mix(g_tilde, g_next, self.lam), Blended(g_next, d))

    def after_skip(self, state: Blended) -> Blended:
        return Blended()  # a gradient was not finite: start again with the next batch


def blended(base: torch.optim.Optimizer, beta: float = 0.3) -> sampa.SharpnessAware:
    return sampa.SharpnessAware(base, BlendedSAMPa(beta=beta))


def train(build: Callable[..., sampa.SharpnessAware], epochs: int) -> tuple[Tensor, float]:
    """The trained weights, and the accuracy on the digits that were not seen."""
    torch.manual_seed(0)
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    seen, unseen = torch.randperm(len(x)).split([1437, 360])
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = build(torch.optim.SGD(model.parameters(), lr=0.5))

    def loss_fn(rows: Tensor) -> Tensor:  # a batch is whatever loss_fn understands
        return F.cross_entropy(model(x[rows]), y[rows])

    for _ in range(epochs):
        for rows in seen[torch.randperm(len(seen))].split(64):
            optimizer.step(loss_fn, rows)
    hits = model(x[unseen]).argmax(1) == y[unseen]
    return nn.utils.parameters_to_vector(model.parameters()), hits.double().mean().item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    epochs = parser.parse_args().epochs
    print(f"test accuracy {100 * train(blended, epochs)[1]:.1f} %")
    same = torch.equal(train(partial(blended, beta=0.0), 1)[0], train(sampa.SAMPa, 1)[0])
    print(f"with beta = 0 it is SAMPa, bit for bit: {same}")
