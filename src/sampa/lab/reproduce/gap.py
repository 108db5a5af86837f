"""How well SAMPa's gradient ∇f(y_t) stands in for SAM's ∇f(x_t), over a training run.

Both are taken on B_t, the batch that perturbs. SAMPa keeps g_t = ∇f(y_t; B_t); before each update
that is watched, the gradient at x_t is computed beside it, and leaves no trace in the run.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from sampa.execution.batch_norm import frozen_statistics
from sampa.lab.reproduce.outcome import Chart, Entry, Line, Outcome
from sampa.lab.reproduce.paper import published
from sampa.lab.reproduce.plan import Choices, Plan, Scale, cells
from sampa.lab.reproduce.request import Request, unfinished_if_stopped
from sampa.lab.reproduce.runner import conditions_of, named, planned_runs, tuned_choices
from sampa.lab.reproduce.settings import described, images
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.loop import Trainer
from sampa.lab.training.progress import Display
from sampa.lab.training.run import Run
from sampa.lab.training.session import Clock, Settings
from sampa.vectors.vector import Vector, add, cosine

NAME, TITLE = "fig-gradient-gap", "cosine and distance of ∇f(x_t) and ∇f(y_t) over training"
TUNINGS = ("clean",)
WATCHED = 200  # updates of a run, evenly spread
FILE = "gap.json"


def plan(scale: Scale, choices: Choices) -> Plan:
    """One method on clean labels; with crops and flips as well where the paper has them."""
    run = images(scale, choices.get("clean"))
    found = cells("ResNet-56" if scale == "paper" else "conv net", run, {"SAMPa-0.2": "sampa-0.2"})
    return Plan(described(run), tuple(found), ())


def carry_out(request: Request) -> Outcome:
    """Train with each seed, watched; runs that are done are not repeated."""
    tuned = tuned_choices(TUNINGS, request)
    choices = {name: t.choice for name, t in tuned.items()}
    planned = named(plan(request.scale, choices), NAME, request.scale)
    grid = planned_runs(planned, request.folder(NAME), request.seeds or 3)
    found = {each.run.seed: watched(each.run, each.folder, request) for _, each in grid}
    known = published(NAME)
    return Outcome(
        id=NAME,
        title=TITLE,
        scale=request.scale,
        about=planned.about,
        label=known.label,
        claim=known.claim,
        unit="means over a part of training, distances relative to ‖∇f(x_t)‖; mean ± standard "
        "deviation over seeds",
        decimals=4,
        entries=tuple(_entries(found)),
        charts=tuple(_charts(found)),
        tuning={name: t.as_json() for name, t in tuned.items()},
        conditions=conditions_of([each.folder for _, each in grid]),
    )


Gap = dict[str, list[float]]
"""By name: step (as a share of the run), cosine, distance, relative distance."""


def watched(run: Run, out: Path, request: Request) -> Gap:
    """A run's gap, measured now or before."""
    folder = RunFolder(out)
    found = folder.read(FILE) if folder.result_of(run) is not None else None
    if found is None:
        folder.open(run, resume=True)
        try:
            settings = Settings(data_dir=request.data_dir, quiet=True)
            trainer = Watcher(run, folder, settings)
            with unfinished_if_stopped():
                trainer.fit()
            folder.write(FILE, trainer.gap)
            found = trainer.gap
        finally:
            folder.close()
    return found


class Watcher(Trainer):
    """A training run that looks at both gradients before some of its updates.

    It starts anew if it was interrupted: what it saw before is not in the checkpoint.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.gap: Gap = {"share": [], "cosine": [], "distance": [], "relative": []}
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
        self.gap["share"].append(position / self.total)
        self.gap["cosine"].append(float(cosine(g_x, g_y)))
        self.gap["distance"].append(float(distance))
        self.gap["relative"].append(float(distance / g_x.norm))

    def _gradient_here(self, batch: Any) -> Vector:
        """∇f(x_t; B_t); statistics of BatchNorm stay as they are."""
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        with frozen_statistics(self.model):
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
            parts = {seed: _part(gap, name, start, end) for seed, gap in found.items()}
            means = {seed: statistics.fmean(values) for seed, values in parts.items() if values}
            entries += [Entry(part, label, means)] if means else []
    smallest = {seed: min(gap["cosine"]) for seed, gap in found.items()}
    return [*entries, Entry("whole training", "smallest cosine", smallest)]


def _part(gap: Gap, name: str, start: float, end: float) -> list[float]:
    """The values of a part of the run; a very short run has none in some."""
    pairs = zip(gap["share"], gap[name], strict=True)
    return [value for share, value in pairs if start <= share < end]


def _charts(found: dict[int, Gap]) -> list[Chart]:
    note = "Mean over seeds; the band reaches from the lowest to the highest."
    kinds = {"cosine": ("Cosine", "cosine"), "distance": ("Distance", "‖∇f(x) − ∇f(y)‖")}
    return [
        Chart(
            f"gradient-{name}",
            f"{title} of ∇f(x_t) and ∇f(y_t)",
            "share of training",
            axis,
            [_band(found, name)],
            note,
        )
        for name, (title, axis) in kinds.items()
    ]


def _band(found: dict[int, Gap], name: str) -> Line:
    """Over the places of training that every seed has: one whose step was dropped lacks some."""
    by_share = [dict(zip(gap["share"], gap[name], strict=True)) for gap in found.values()]
    x = sorted(set.intersection(*map(set, by_share)))

    def over_seeds(how: Callable[[Sequence[float]], float]) -> list[float]:
        return [how([values[share] for values in by_share]) for share in x]

    return Line("SAMPa-0.2", x, over_seeds(statistics.fmean), over_seeds(min), over_seeds(max))
