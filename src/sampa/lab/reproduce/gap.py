"""How well SAMPa's gradient ∇f(y_t) stands in for SAM's ∇f(x_t), over a training run.

Both are taken on B_t, the batch that perturbs. SAMPa keeps g_t = ∇f(y_t; B_t); before each update
that is watched, the gradient at x_t is computed beside it, and leaves no trace in the run.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from sampa.execution.layers import Layers
from sampa.lab.reproduce.plan import Choices, Plan, accuracies
from sampa.lab.reproduce.request import Request
from sampa.lab.reproduce.runner import (
    conditions_of_runs,
    kept_runs,
    opened_folder,
    planned_runs,
    time_spent,
    tuned_choices,
)
from sampa.lab.reproduce.settings import images
from sampa.lab.results.charts import EXTREMES, Chart, Line, over_seeds
from sampa.lab.results.outcome import Entry, Outcome
from sampa.lab.results.paper import Scale
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.loop import Trainer
from sampa.lab.training.method import checked_method
from sampa.lab.training.progress import Display
from sampa.lab.training.run import Run
from sampa.lab.training.session import Clock, Settings
from sampa.vectors.vector import Vector, add, cosine

WATCHED = 200  # updates of a run, evenly spread
GAP_FILE = "gap.json"


def plan_gap(scale: Scale, choices: Choices) -> Plan:
    """One method on clean labels; with crops and flips as well where the paper has them."""
    row = "ResNet-56" if scale == "paper" else "conv net"
    return Plan(accuracies({row: images(scale, choices.get("clean"))}, {"SAMPa-0.2": "sampa-0.2"}))


def gradient_gap(blank: Outcome, request: Request) -> Outcome:
    """Train with each seed, watched; runs that are done are not repeated."""
    tuned = tuned_choices(("clean",), request)
    planned = plan_gap(request.scale, {name: t.choice for name, t in tuned.items()})
    grid = planned_runs(planned, blank, request, seeds=3)
    runs = {folder: run for _, folder, run in grid}
    with kept_runs(request, blank.id, runs, restores=False):  # what was watched is in no record
        found = {run.seed: watched(run, folder, request) for _, folder, run in grid}
    return replace(
        blank,
        about=planned.heading,
        unit="means over a part of training, distances relative to ‖∇f(x_t)‖; mean ± standard "
        "deviation over seeds",
        decimals=4,
        entries=tuple(_entries(found)),
        charts=(
            _chart("cosine", "Cosine", "cosine", found),
            _chart("distance", "Distance", "‖∇f(x) − ∇f(y)‖", found),
        ),
        facts=(time_spent([folder for _, folder, _ in grid], tuned, request),),
        tuning=tuned,
        conditions=conditions_of_runs((folder for _, folder, _ in grid), tuned, request),
    )


@dataclass(frozen=True)
class Gap:
    """Both gradients over a run, at each update that was watched.

    Attributes:
        share: Of the run that was done.
        relative: The distance divided by the norm of ∇f(x_t).
    """

    share: list[float] = field(default_factory=list)
    cosine: list[float] = field(default_factory=list)
    distance: list[float] = field(default_factory=list)
    relative: list[float] = field(default_factory=list)


def watched(run: Run, out: Path, request: Request) -> Gap:
    """A run's gap, measured now or before."""
    folder = RunFolder(out)
    found = folder.read(GAP_FILE) if folder.result_of(run) is not None else None
    if found is not None:
        return Gap(**found)
    with opened_folder(run, out) as folder:
        settings = Settings(data_dir=request.data_dir, quiet=True)
        trainer = Watcher(run, folder, settings, checked_method(run))
        trainer.fit()
        folder.write(GAP_FILE, asdict(trainer.gap))
    return trainer.gap


class Watcher(Trainer):
    """A training run that looks at both gradients before some of its updates.

    It starts anew if it was interrupted: what it saw before is not in the checkpoint.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.gap = Gap()
        self.total = len(self.task.batches) * self.epochs
        self.every = max(1, self.total // WATCHED)

    def train_batch(self, position: int, clock: Clock, display: Display) -> None:
        if position % self.every == 0 and position > 0:
            self._look(position)
        super().train_batch(position, clock, display)

    def _look(self, position: int) -> None:
        g_y = held_gradient(self.optimizer)
        if g_y is None:  # the step before was dropped
            return
        g_x = self._gradient_here(self.batch(position - 1))
        distance = add(g_x, g_y, alpha=-1).norm
        self.gap.share.append(position / self.total)
        self.gap.cosine.append(float(cosine(g_x, g_y)))
        self.gap.distance.append(float(distance))
        self.gap.relative.append(float(distance / g_x.norm))

    def _gradient_here(self, batch: Any) -> Vector:
        """∇f(x_t; B_t); statistics of BatchNorm stay as they are."""
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        with Layers(self.model).one_pass(counts=False):
            value = self.task.loss(self.model, batch).value
            assert value is not None
            return Vector(torch.autograd.grad(value, parameters))


def held_gradient(optimizer: Any) -> Vector | None:
    """SAMPa's g_t as it is in its state."""
    packed = optimizer.state_dict()["sampa"]["method_state"]["g"]
    return None if packed is None else Vector(packed["vector"])


# ---- numbers and pictures --------------------------------------------------------------------

PARTS: dict[str, tuple[float, float]] = {
    "first tenth of training": (0.0, 0.1),
    "middle of training": (0.1, 0.9),
    "last tenth of training": (0.9, 1.0),
}


def _entries(found: dict[int, Gap]) -> list[Entry]:
    """Means over parts of the run, and the smallest cosine of all."""
    entries: list[Entry] = []
    for part, (start, end) in PARTS.items():
        for name, label in (("cosine", "cosine"), ("relative", "relative distance")):
            means: dict[int, float] = {}
            for seed, gap in found.items():
                pairs = zip(gap.share, getattr(gap, name), strict=True)
                values = [value for share, value in pairs if start <= share < end]
                if values:  # a very short run has none in some parts
                    means[seed] = statistics.fmean(values)
            entries += [Entry(part, label, means)] if means else []
    smallest = {seed: min(gap.cosine) for seed, gap in found.items()}
    return [*entries, Entry("whole training", "smallest cosine", smallest)]


def _chart(name: str, title: str, axis: str, found: dict[int, Gap]) -> Chart:
    title = f"{title} of ∇f(x_t) and ∇f(y_t)"
    lines = [_band(list(found.values()), name)]
    note = f"Both on B_t, the batch that perturbs. {EXTREMES}"
    return Chart(f"gradient-{name}", title, "share of training", axis, lines, note)


def _band(found: Sequence[Gap], name: str) -> Line:
    """Over the places of training that every seed has: one whose step was dropped lacks some."""
    by_share = [dict(zip(gap.share, getattr(gap, name), strict=True)) for gap in found]
    x = sorted(set.intersection(*map(set, by_share)))
    return over_seeds("SAMPa-0.2", x, [[values[share] for values in by_share] for share in x])
