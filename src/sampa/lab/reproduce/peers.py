"""Others' code on the same data and seeds: equal accuracy within error, and our time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sampa.lab.conditions import Conditions
from sampa.lab.reproduce.grids import SAM_AND_SAMPA
from sampa.lab.reproduce.peer_optimizers import PlainSAM, ScriptSAMPa
from sampa.lab.reproduce.plan import Choices, Plan, accuracies
from sampa.lab.reproduce.request import Request
from sampa.lab.reproduce.runner import (
    PlannedRuns,
    conditions_of_runs,
    kept_runs,
    opened_folder,
    planned_runs,
    run_grid,
    time_spent,
)
from sampa.lab.reproduce.settings import images
from sampa.lab.reproduce.speed import PEER_NAMES, contest
from sampa.lab.reproduce.times import TIME, ratio_entries
from sampa.lab.results.outcome import Entry, Outcome, RunResult
from sampa.lab.results.paper import Scale
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.hyperparameters import radius_of
from sampa.lab.training.loop import Trainer
from sampa.lab.training.method import base_optimizer, checked_method
from sampa.lab.training.progress import Display
from sampa.lab.training.run import Run
from sampa.lab.training.session import Settings

PEER_SEEDS, PEER_TUNINGS = 5, ("noise",)
Peer = PlainSAM | ScriptSAMPa
PEERS: dict[str, Callable[..., Peer]] = {"sam": PlainSAM, "sampa-0.2": ScriptSAMPa}


def plan_peers(scale: Scale, choices: Choices) -> Plan:
    """Ours: SAM and SAMPa-0.2 where they differ most from SGD."""
    rows = {"test accuracy": images(scale, choices.get("noise"), noise=40)}
    return Plan(accuracies(rows, SAM_AND_SAMPA))


def compare_peers(blank: Outcome, request: Request) -> Outcome:
    """Our runs, theirs with the same radii, and a contest of steps on one device."""
    tunings, seeds = PEER_TUNINGS, PEER_SEEDS
    outcome = run_grid(blank, request, plan_peers, tunings, seeds, further=peer_runs)
    plan = plan_peers(request.scale, {n: t.choice for n, t in outcome.tuning.items()})
    grid = planned_runs(plan, blank, request, PEER_SEEDS)
    ours, peers = {folder: run for _, folder, run in grid}, peer_runs(grid)
    values: dict[str, dict[int, float]] = {}
    with kept_runs(request, blank.id, {**ours, **peers}):
        for folder, run in peers.items():
            name = run.sources["method"]["name"]
            result = train_peer(run, folder, request)
            values.setdefault(name, {})[run.seed] = result.test["accuracy"]
    theirs = [Entry("test accuracy", name, own) for name, own in values.items()]
    found = contest("peers", request)
    every = [*ours, *peers]
    made = conditions_of_runs(every, outcome.tuning, request)
    return replace(
        outcome,
        about=f"{outcome.about}. Time, all on one device: {found.about}",
        entries=(*outcome.entries, *theirs, *ratio_entries(TIME, found, {}, "SAM")),
        facts=(*outcome.facts[:-1], time_spent(every, outcome.tuning, request)),
        pairs=tuple((peer, name) for name, peer in PEER_NAMES.items()),
        conditions=Conditions.merged([made, found.conditions]),
    )


def peer_runs(grid: PlannedRuns) -> dict[Path, Run]:
    """A run with others' optimizer beside each of ours."""
    found: dict[Path, Run] = {}
    for entry, folder, run in grid:
        name = PEER_NAMES[entry.column]
        place = folder.parent.with_name(f"{folder.parent.name}-peer") / folder.name
        # It is not a run of ours: `sources` keeps other tables from taking it over as one.
        sources = {"method": {"sha256": "", "name": name}}
        found[place] = replace(run, name=f"{run.name}, {name}", sources=sources)
    return found


def train_peer(run: Run, out: Path, request: Request) -> RunResult:
    """A run with others' optimizer; anew if it was interrupted."""
    found = RunFolder(out).result_of(run)
    if found is not None:
        return found
    with opened_folder(run, out) as folder:
        settings = Settings(data_dir=request.data_dir, quiet=True)
        return PeerTrainer(run, folder, settings, checked_method(run)).fit()


@dataclass(frozen=True)
class PeerRecord:
    """What the loop asks about the last step."""

    step: int = 0
    sharpness: None = None
    cosine: None = None
    skips: int = 0


class PeerOptimizer:
    """A peer in the place of our optimizer, in our loop."""

    def __init__(self, run: Run, model: Any) -> None:
        self.base = base_optimizer(run.base, model)
        self.peer = PEERS[run.method](model, self.base, radius_of(run))
        self.param_groups = self.base.param_groups
        self.last = PeerRecord()

    def set_epoch(self, epoch: int) -> None:
        """Neither of them needs it."""

    def step(self, loss_fn: Callable[[Any], Any], batch: Any) -> Any:
        self.last = replace(self.last, step=self.last.step + 1)
        return self.peer.step(lambda part: loss_fn(part).value, batch)


class PeerTrainer(Trainer):
    """Our loop, data, seeds and judgment around others' steps."""

    def __init__(self, run: Run, *arguments: Any) -> None:
        super().__init__(run, *arguments)
        self.optimizer: Any = PeerOptimizer(run, self.model)

    def _save(self, display: Display) -> None:
        """Their state is in no checkpoint of ours; the best model is kept as ever."""
