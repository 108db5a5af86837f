"""The paper's lemma and theorem, measured: descent of the potential V_t, and the rate.

V_t = f(x_t) + ½ (1 − η_t L) ‖∇f(x_t) − ∇f(y_t)‖²
V_{t+1} ≤ V_t − η_t (1 − η_t L / 2) ‖∇f(x_t)‖² + η_t² ρ² C        (lem:sampa:descent)
Σ w_t ‖∇f(x_t)‖² ≤ (Δ_0 + C ρ² Σ η_t²) / Σ η_t (1 − η_t L / 2)    (thm:sampa:descent)

with C = ½ (L² + L³) + ⅔ L⁴, for convex f with an L-Lipschitz gradient and λ = 0. The printed
condition η_t < max{1, 1 / 2L} must read min, as the proof uses both; here η_t is below both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import sampa
from sampa.lab.reproduce.outcome import Chart, Entry, Line, Outcome
from sampa.lab.reproduce.paper import published
from sampa.lab.reproduce.request import Request
from sampa.lab.training.conditions import conditions

RHO = 0.1
HORIZONS = (10, 30, 100, 300, 1000)
NO_BATCH = torch.zeros(1)  # full gradients
TITLE = "the potential V_t and the rate of the theorem, bound against measured"


class Problem(nn.Module):
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


def quadratic(seed: int) -> Problem:
    """½ xᵀ A x in ten dimensions, with eigenvalues from 0 to 2."""
    rotation = torch.linalg.qr(_normal(seed, 10, 10))[0]
    A = rotation @ torch.diag(torch.linspace(0, 2, 10, dtype=torch.float64)) @ rotation.T
    return Problem(lambda x: 0.5 * x @ A @ x, 3 * _normal(seed + 1, 10), 2.0, 0.0)


def logistic(seed: int) -> Problem:
    """Cross-entropy to the probabilities σ(X w*), so that the infimum is reached at w*."""
    samples = 50
    X, w_star = _normal(seed, samples, 5), _normal(seed + 1, 5)
    targets = torch.sigmoid(X @ w_star)

    def f(w: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(X @ w, targets)

    lipschitz = torch.linalg.matrix_norm(X, 2).item() ** 2 / (4 * samples)
    return Problem(f, 5 * _normal(seed + 2, 5), lipschitz, f(w_star).item())


PROBLEMS = {"quadratic": quadratic, "logistic regression": logistic}


def _normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def constant(L: float) -> float:
    return (L**2 + L**3) / 2 + 2 * L**4 / 3  # C with c = ½


@dataclass(frozen=True)
class Trace:
    """What one run visited, t = 0 .. T.

    Attributes:
        potential: V_t.
        allowed: The bound of V_{t+1} from V_t, for t = 0 .. T−1.
        squares: ‖∇f(x_t)‖².
    """

    lr: float
    potential: list[float]
    allowed: list[float]
    squares: list[float]


def step_size(problem: Problem, T: int) -> float:
    """η = min{√(Δ_0 / (C ρ² T)), 1 / 2L, 1}, the theorem's choice."""
    L = problem.lipschitz
    gap = problem.f(problem.x.detach()).item() - problem.infimum
    return min((gap / (constant(L) * RHO**2 * T)) ** 0.5, 0.5 / L, 1.0)


def trace(problem: Problem, lr: float, T: int) -> Trace:
    """SAMPa-0 for T updates, watched from outside: the lookahead y is the last point evaluated."""
    points: list[Tensor] = []

    def loss_fn(batch: Tensor) -> Tensor:
        points.append(problem.x.detach().clone())
        return problem(batch)

    base = torch.optim.SGD(problem.parameters(), lr=lr)
    optimizer = sampa.SAMPa(base, rho=RHO, lam=0.0, perturb_eps=0.0)
    found = Trace(lr, [], [], [])
    for _ in range(T + 1):  # the first call computes g_0 = ∇f(y_0), and y_0 = x_0
        optimizer.step(loss_fn, NO_BATCH)
        _note(found, problem, problem.x.detach().clone(), points[-1])
    return found


def _note(found: Trace, problem: Problem, x: Tensor, y: Tensor) -> None:
    L, lr = problem.lipschitz, found.lr
    g = problem.gradient(x)
    square, gap = g.square().sum().item(), (g - problem.gradient(y)).square().sum().item()
    potential = problem.f(x).item() + 0.5 * (1 - lr * L) * gap  # V_t
    found.potential.append(potential)
    found.squares.append(square)
    error = lr**2 * RHO**2 * constant(L)
    found.allowed.append(potential - lr * (1 - lr * L / 2) * square + error)


def rate(problem: Problem, found: Trace) -> tuple[float, float]:
    """The mean of ‖∇f(x_t)‖² over a run with fixed η, and the theorem's bound."""
    L, lr, squares = problem.lipschitz, found.lr, found.squares[:-1]
    T = len(squares)
    gap = found.potential[0] - problem.infimum
    bound = (gap + constant(L) * RHO**2 * T * lr**2) / (T * lr * (1 - lr * L / 2))
    return sum(squares) / T, bound


@dataclass(frozen=True)
class Measured:
    """One problem at one horizon with one seed.

    Attributes:
        mean: Of ‖∇f(x_t)‖² over the run.
        bound: The theorem's.
        infimum: Of f.
    """

    problem: str
    horizon: int
    seed: int
    mean: float
    bound: float
    trace: Trace
    infimum: float = 0.0

    @property
    def violations(self) -> int:
        """Updates after which the potential is above what the lemma allows."""
        pairs = zip(self.trace.allowed, self.trace.potential[1:], strict=False)
        return sum(after > allowed + 1e-12 * (1 + abs(after)) for allowed, after in pairs)


def measure(name: str, horizon: int, seed: int) -> Measured:
    problem = PROBLEMS[name](100 * seed)
    found = trace(problem, step_size(problem, horizon), horizon)
    return Measured(name, horizon, seed, *rate(problem, found), found, problem.infimum)


def carry_out(request: Request) -> Outcome:
    """Each problem with each horizon, once for every seed."""
    horizons = HORIZONS[:2] if request.scale == "smoke" else HORIZONS
    seeds = range(request.seeds or 3)
    found = [measure(name, T, seed) for name in PROBLEMS for T in horizons for seed in seeds]
    updates = sum(m.horizon for m in found)
    violations = sum(m.violations for m in found)
    known = published("theory")
    return Outcome(
        id="theory",
        title=TITLE,
        scale=request.scale,
        about=f"SAMPa-0 with ρ = {RHO:g} and the theorem's fixed step size; a quadratic in 10 "
        "dimensions, and logistic regression on 50 samples with 5 features",
        label=known.label,
        claim=known.claim,
        unit="mean of ‖∇f(x_t)‖² over T updates, mean ± standard deviation over problems",
        decimals=4,
        entries=tuple(_entries(found)),
        pairs=(("measured", "bound"),),
        charts=tuple(chart for name in PROBLEMS for chart in _charts(name, found)),
        facts=(f"The potential was above the lemma's bound in {violations} of {updates} updates.",),
        conditions=conditions(),
    )


def _entries(found: list[Measured]) -> list[Entry]:
    entries: list[Entry] = []
    for name, horizon in dict.fromkeys((m.problem, m.horizon) for m in found):
        group = [m for m in found if (m.problem, m.horizon) == (name, horizon)]
        row = f"{name}, T = {horizon}"
        entries.append(Entry(row, "bound", {m.seed: m.bound for m in group}))
        entries.append(Entry(row, "measured", {m.seed: m.mean for m in group}))
    return entries


def _charts(name: str, found: list[Measured]) -> list[Chart]:
    own = [m for m in found if m.problem == name]
    longest = [m for m in own if m.horizon == max(m.horizon for m in own)]
    return [_potential_chart(name, longest[0]), _rate_chart(name, own)]


def _potential_chart(name: str, found: Measured) -> Chart:
    """V_t and what the lemma allows it to be, both from the same point, above the infimum."""
    steps = list(range(1, min(len(found.trace.potential), 61)))
    x = [float(t) for t in steps]
    lines = [
        Line("bound from V_{t−1}", x, [found.trace.allowed[t - 1] - found.infimum for t in steps]),
        Line("V_t", x, [found.trace.potential[t] - found.infimum for t in steps]),
    ]
    title, note = f"Potential, {name}", "The first seed; f* is the infimum."
    file = f"potential-{name.split()[0]}"
    return Chart(file, title, "update", "V − f*", lines, note, log_y=True)


def _rate_chart(name: str, found: list[Measured]) -> Chart:
    bounds: dict[int, list[float]] = {}
    means: dict[int, list[float]] = {}
    for m in found:
        bounds.setdefault(m.horizon, []).append(m.bound)
        means.setdefault(m.horizon, []).append(m.mean)
    lines = [_band("bound", bounds), _band("measured", means)]
    title, file = f"Mean of ‖∇f(x_t)‖², {name}", f"rate-{name.split()[0]}"
    note = "Mean over seeds; the band reaches from the lowest to the highest."
    axes = "T", "mean of ‖∇f‖²"
    return Chart(file, title, *axes, lines, note, log_y=True, log_x=True)


def _band(label: str, values: dict[int, list[float]]) -> Line:
    found = list(values.values())
    mean, low, high = map(statistics.fmean, found), map(min, found), map(max, found)
    return Line(label, [float(T) for T in values], list(mean), list(low), list(high))
