"""The paper's Lemma (descent of the potential) and Theorem (rate), driven through the library.

V_t = f(x_t) + ½ (1 − η_t L) ‖∇f(x_t) − ∇f(y_t)‖²
V_{t+1} ≤ V_t − η_t (1 − η_t L / 2) ‖∇f(x_t)‖² + η_t² ρ² C,    C = ½ (L² + L³ + L⁴ / (1 − c²))

for convex f with L-Lipschitz gradient, λ = 0 and a non-increasing η_t. The paper's condition
η_t < max{1, c / L} must read min: its proof uses both, and the last test shows that it has to.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import sampa
from sampa.lab.reproduce.theory import ConvexProblem
from tests.problems import watched

STEPS = 25
bounded = settings(  # each example is two dozen steps
    derandomize=True,
    max_examples=settings().max_examples // 2,
    suppress_health_check=[HealthCheck.too_slow],
)


@dataclass(frozen=True)
class Run:
    """What SAMPa-0 visited: x_t, y_t for t = 0 .. STEPS, and the η_t used."""

    x: list[Tensor]
    y: list[Tensor]
    lr: list[float]


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@st.composite
def quadratics(draw: st.DrawFn) -> ConvexProblem:
    """½ xᵀ A x with A ⪰ 0 of random eigenvectors, flat directions included."""
    eigenvalues = draw(st.lists(st.floats(0.0, 5.0), min_size=1, max_size=4))
    eigenvalues[0] = max(eigenvalues[0], 0.05)  # L > 0
    seed, size = draw(st.integers(0, 10_000)), draw(st.floats(0.1, 10.0))
    rotation = torch.linalg.qr(normal(seed, len(eigenvalues), len(eigenvalues)))[0]
    A = rotation @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ rotation.T
    start = size * normal(seed + 1, len(eigenvalues))
    return ConvexProblem(lambda x: 0.5 * x @ A @ x, start, max(eigenvalues), 0.0)


@st.composite
def logistic_regressions(draw: st.DrawFn) -> ConvexProblem:
    """Cross-entropy to the probabilities σ(X w*): the infimum is reached at w*."""
    seed, size = draw(st.integers(0, 10_000)), draw(st.floats(0.5, 3.0))
    samples, features = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    X = size * normal(seed, samples, features)
    w_star = normal(seed + 1, features)
    targets = torch.sigmoid(X @ w_star)

    def f(w: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(X @ w, targets)

    lipschitz = torch.linalg.matrix_norm(X, 2).item() ** 2 / (4 * samples)
    return ConvexProblem(f, 3.0 * normal(seed + 2, features), lipschitz, f(w_star).item())


def run_sampa(problem: ConvexProblem, rho: float, lr: list[float]) -> Run:
    base = torch.optim.SGD(problem.parameters(), lr=lr[0])
    optimizer = sampa.SAMPa(base, rho=rho, lam=0.0, perturb_eps=0.0)
    loss_fn, points = watched(problem, problem)
    optimizer.step(loss_fn, torch.zeros(1))
    x, y = [points[0]], [points[0]]
    for step_size in lr[:-1]:
        base.param_groups[0]["lr"] = step_size
        batch = torch.zeros(1)  # full gradients: it is only told apart from others
        optimizer.step(loss_fn, batch)
        x.append(problem.x.detach().clone())
        y += points.on(batch)
    return Run(x, y, lr)


def schedule(problem: ConvexProblem, c: float, share: float, decay: float) -> list[float]:
    """Non-increasing, below min{1, c / L}; `decay` = 0 is constant."""
    largest = share * min(1.0, c / problem.lipschitz)
    return [largest / (1 + t) ** decay for t in range(STEPS + 1)]


def constant(lipschitz: float, c: float) -> float:
    return (lipschitz**2 + lipschitz**3 + lipschitz**4 / (1 - c * c)) / 2


def assert_potential_descends(problem: ConvexProblem, run: Run, rho: float, c: float) -> None:
    L = problem.lipschitz

    def potential(t: int) -> float:
        gap = problem.gradient(run.x[t]) - problem.gradient(run.y[t])
        return problem.f(run.x[t]).item() + 0.5 * (1 - run.lr[t] * L) * gap.square().sum().item()

    V = [potential(t) for t in range(len(run.x))]
    for t, (now, after) in enumerate(pairwise(V)):
        lr, g = run.lr[t], problem.gradient(run.x[t])
        bound = now - lr * (1 - lr * L / 2) * g.square().sum().item()
        bound += lr**2 * rho**2 * constant(L, c)
        rounding = 1e-12 * (1 + abs(now))  # some hundred operations in float64
        assert after <= bound + rounding, f"update {t}: {after} > {bound}"


def assert_rate_holds(problem: ConvexProblem, run: Run, rho: float) -> None:
    """Eq. thm:stepsize:varying, with c = ½."""
    L, lr = problem.lipschitz, run.lr[:-1]
    weights = [a * (1 - a * L / 2) for a in lr]
    squares = [problem.gradient(x).square().sum().item() for x in run.x[:-1]]
    average = sum(w * s for w, s in zip(weights, squares, strict=True)) / sum(weights)
    delta = problem.f(run.x[0]).item() - problem.infimum
    bound = (delta + constant(L, 0.5) * rho**2 * sum(a * a for a in lr)) / sum(weights)
    assert average <= bound * (1 + 1e-12) + 1e-12


radii = st.floats(0.001, 2.0)
shares = st.floats(0.05, 0.99)
decays = st.sampled_from([0.0, 0.5, 1.0])


@bounded
@given(quadratics(), radii, shares, decays, st.floats(0.1, 0.9))
def test_potential_descends_on_convex_quadratics(
    problem: ConvexProblem, rho: float, share: float, decay: float, c: float
) -> None:
    run = run_sampa(problem, rho, schedule(problem, c, share, decay))
    assert_potential_descends(problem, run, rho, c)


@bounded
@given(logistic_regressions(), radii, shares, decays, st.floats(0.1, 0.9))
def test_potential_descends_on_logistic_regression(
    problem: ConvexProblem, rho: float, share: float, decay: float, c: float
) -> None:
    run = run_sampa(problem, rho, schedule(problem, c, share, decay))
    assert_potential_descends(problem, run, rho, c)


@bounded
@given(quadratics(), radii, shares, decays)
def test_weighted_gradient_norms_obey_the_rate_on_quadratics(
    problem: ConvexProblem, rho: float, share: float, decay: float
) -> None:
    assert_rate_holds(problem, run_sampa(problem, rho, schedule(problem, 0.5, share, decay)), rho)


@bounded
@given(logistic_regressions(), radii, shares, decays)
def test_weighted_gradient_norms_obey_the_rate_on_logistic_regression(
    problem: ConvexProblem, rho: float, share: float, decay: float
) -> None:
    assert_rate_holds(problem, run_sampa(problem, rho, schedule(problem, 0.5, share, decay)), rho)


def test_the_larger_of_the_two_step_sizes_diverges() -> None:
    """η = 0.9 < max{1, c / L} for L = 4: the printed condition cannot be meant."""
    problem = ConvexProblem(
        lambda x: 2 * x.square().sum(), torch.ones(1, dtype=torch.float64), 4.0, 0.0
    )
    run = run_sampa(problem, 0.1, [0.9] * (STEPS + 1))
    assert abs(run.x[-1].item()) > 1e6
