"""The paper's lemma and theorem, measured: descent of the potential V_t, and the rate.

V_t = f(x_t) + ½ (1 − η_t L) ‖∇f(x_t) − ∇f(y_t)‖²
V_{t+1} ≤ V_t − η_t (1 − η_t L / 2) ‖∇f(x_t)‖² + η_t² ρ² C        (lem:sampa:descent)
Σ w_t ‖∇f(x_t)‖² ≤ (Δ_0 + C ρ² Σ η_t²) / Σ η_t (1 − η_t L / 2)    (thm:sampa:descent)

with C = ½ (L² + L³) + ⅔ L⁴, for convex f with an L-Lipschitz gradient and λ = 0. The printed
condition η_t < max{1, 1 / 2L} must read min, as the proof uses both; here η_t is below both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

import sampa
from sampa.lab.conditions import Conditions
from sampa.lab.reproduce.request import Request
from sampa.lab.results.charts import EXTREMES, Chart, Line, over_seeds
from sampa.lab.results.outcome import Entry, Outcome

RADIUS = 0.1
HORIZONS = (10, 30, 100, 300, 1000)


class ConvexProblem(nn.Module):
    """A convex function with a known Lipschitz constant and infimum."""

    def __init__(
        self, f: Callable[[Tensor], Tensor], start: Tensor, lipschitz: float, infimum: float
    ) -> None:
        super().__init__()
        self.f, self.lipschitz, self.infimum = f, lipschitz, infimum
        self.x = nn.Parameter(start.clone())

    def forward(self, batch: Tensor) -> Tensor:
        return self.f(self.x)

    def gradient(self, x: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        return torch.autograd.grad(self.f(x), x)[0]


def quadratic(seed: int) -> ConvexProblem:
    """½ xᵀ A x in ten dimensions, with eigenvalues from 0 to 2."""
    rotation = torch.linalg.qr(_normal(seed, 10, 10))[0]
    A = rotation @ torch.diag(torch.linspace(0, 2, 10, dtype=torch.float64)) @ rotation.T
    return ConvexProblem(lambda x: 0.5 * x @ A @ x, 3 * _normal(seed + 1, 10), 2.0, 0.0)


def logistic(seed: int) -> ConvexProblem:
    """Cross-entropy to the probabilities σ(X w*), so that the infimum is reached at w*."""
    samples = 50
    X, w_star = _normal(seed, samples, 5), _normal(seed + 1, 5)
    targets = torch.sigmoid(X @ w_star)

    def f(w: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(X @ w, targets)

    lipschitz = torch.linalg.matrix_norm(X, 2).item() ** 2 / (4 * samples)
    return ConvexProblem(f, 5 * _normal(seed + 2, 5), lipschitz, f(w_star).item())


PROBLEMS = {"quadratic": quadratic, "logistic regression": logistic}


def _normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def constant(L: float) -> float:
    return (L**2 + L**3) / 2 + 2 * L**4 / 3  # C with c = ½


@dataclass(frozen=True)
class Trajectory:
    """What one run visited, t = 0 .. T.

    Attributes:
        potential: V_t.
        allowed: The bound of V_{t+1} from V_t.
        squares: ‖∇f(x_t)‖².
    """

    problem: ConvexProblem
    lr: float
    potential: list[float] = field(default_factory=list)
    allowed: list[float] = field(default_factory=list)
    squares: list[float] = field(default_factory=list)

    @property
    def updates(self) -> int:
        return len(self.potential) - 1

    @property
    def violations(self) -> int:
        """Updates after which the potential is above what the lemma allows."""
        pairs = zip(self.allowed, self.potential[1:], strict=False)
        return sum(after > allowed + 1e-12 * (1 + abs(after)) for allowed, after in pairs)

    @property
    def mean(self) -> float:
        """Of ‖∇f(x_t)‖² over the updates."""
        return sum(self.squares[:-1]) / self.updates

    @property
    def bound(self) -> float:
        """The theorem's, of that mean, for a fixed η."""
        L, lr, T = self.problem.lipschitz, self.lr, self.updates
        gap = self.potential[0] - self.problem.infimum
        return (gap + constant(L) * RADIUS**2 * T * lr**2) / (T * lr * (1 - lr * L / 2))

    def visit(self, x: Tensor, y: Tensor) -> None:
        problem, L, lr = self.problem, self.problem.lipschitz, self.lr
        g = problem.gradient(x)
        square, gap = g.square().sum().item(), (g - problem.gradient(y)).square().sum().item()
        potential = problem.f(x).item() + 0.5 * (1 - lr * L) * gap  # V_t
        self.potential.append(potential)
        self.squares.append(square)
        error = lr**2 * RADIUS**2 * constant(L)
        self.allowed.append(potential - lr * (1 - lr * L / 2) * square + error)


def step_size(problem: ConvexProblem, T: int) -> float:
    """η = min{√(Δ_0 / (C ρ² T)), 1 / 2L, 1}, the theorem's choice."""
    L = problem.lipschitz
    gap = problem.f(problem.x.detach()).item() - problem.infimum
    return min((gap / (constant(L) * RADIUS**2 * T)) ** 0.5, 0.5 / L, 1.0)


def trace(problem: ConvexProblem, T: int) -> Trajectory:
    """SAMPa-0 for T updates, watched from outside: y_t is where batch t is evaluated first."""
    y: dict[int, Tensor] = {}

    def loss_fn(batch: Tensor) -> Tensor:
        y.setdefault(int(batch), problem.x.detach().clone())
        return problem(batch)

    found = Trajectory(problem, step_size(problem, T))
    base = torch.optim.SGD(problem.parameters(), lr=found.lr)
    optimizer = sampa.SAMPa(base, rho=RADIUS, lam=0.0, perturb_eps=0.0)
    for t in range(T + 1):  # the first call computes g_0 = ∇f(y_0), and y_0 = x_0
        optimizer.step(loss_fn, torch.tensor([t]))  # full gradients: a batch is only its number
        found.visit(problem.x.detach().clone(), y[t])
    return found


Traces = dict[int, list[Trajectory]]
"""By the number of updates: a trace for each seed."""


def theory_bounds(blank: Outcome, request: Request) -> Outcome:
    """Each problem with each horizon, once for every seed."""
    horizons = HORIZONS[:2] if request.scale == "smoke" else HORIZONS
    seeds = range(request.seeds or 3)
    found: dict[str, Traces] = {
        name: {T: [trace(make(100 * seed), T) for seed in seeds] for T in horizons}
        for name, make in PROBLEMS.items()
    }
    traces = [t for own in found.values() for group in own.values() for t in group]
    updates, violations = sum(t.updates for t in traces), sum(t.violations for t in traces)
    return replace(
        blank,
        about=f"SAMPa-0 with ρ = {RADIUS:g} and the theorem's fixed step size; a quadratic in 10 "
        "dimensions, and logistic regression on 50 samples with 5 features",
        unit="mean of ‖∇f(x_t)‖² over T updates, mean ± standard deviation over problems",
        decimals=4,
        entries=tuple(entry for name, own in found.items() for entry in _entries(name, own)),
        pairs=(("measured", "bound"),),
        charts=tuple(chart for name, own in found.items() for chart in _charts(name, own)),
        facts=(f"The potential was above the lemma's bound in {violations} of {updates} updates.",),
        conditions=Conditions.now(),
    )


def _entries(name: str, found: Traces) -> list[Entry]:
    entries: list[Entry] = []
    for T, traces in found.items():
        row = f"{name}, T = {T}"
        entries.append(Entry(row, "bound", {seed: t.bound for seed, t in enumerate(traces)}))
        entries.append(Entry(row, "measured", {seed: t.mean for seed, t in enumerate(traces)}))
    return entries


def _charts(name: str, found: Traces) -> list[Chart]:
    """V_t and what the lemma allows it to be, both from the same point; and the rate."""
    file, first = name.split()[0], found[max(found)][0]
    steps = list(range(1, min(len(first.potential), 61)))
    x, infimum = [float(t) for t in steps], first.problem.infimum
    potentials = [
        Line("bound from V_{t−1}", x, [first.allowed[t - 1] - infimum for t in steps]),
        Line("V_t", x, [first.potential[t] - infimum for t in steps]),
    ]
    horizons, groups = [float(T) for T in found], list(found.values())
    rates = [
        over_seeds("bound", horizons, [[t.bound for t in traces] for traces in groups]),
        over_seeds("measured", horizons, [[t.mean for t in traces] for traces in groups]),
    ]
    note = "The first seed; f* is the infimum."
    potential_words = (f"potential-{file}", f"Potential, {name}", "update", "V − f*")
    rate_words = (f"rate-{file}", f"Mean of ‖∇f(x_t)‖², {name}", "T", "mean of ‖∇f‖²")
    return [
        Chart(*potential_words, potentials, note, log_y=True),
        Chart(*rate_words, rates, EXTREMES, log_y=True, log_x=True),
    ]
