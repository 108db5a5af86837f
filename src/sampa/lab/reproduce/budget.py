"""The reduced editions as a table of core-hours, in the order in which they convince most."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sampa.lab.files import read_json_lines
from sampa.lab.reproduce.catalog import EXPERIMENTS
from sampa.lab.reproduce.core_time import core_hours, tuning_hours
from sampa.lab.reproduce.finished import core_hours_of, settings_of
from sampa.lab.reproduce.plan import Experiment
from sampa.lab.results.outcome import RESULTS, read_outcome
from sampa.lab.results.table import Table, as_markdown, number_cell, row

ORDER = (
    *("full-cifar10", "accuracy-over-time", "late-cifar10", "tab-noise", "tab-cifar10"),
    *("tab-efficiency", "fig-lambda", "why-lambda", "why-below-sam", "why-esam", "why-epochs"),
    *("tab-cifar100", "peers", "tab-penalty", "tab-optsam", "tab-sam-db", "fig-gradient-gap"),
    *("tab-glue", "tab-vit", "tab-incorporation", "tab-imagenet"),
)


@dataclass(frozen=True)
class Share:
    """What an experiment adds to those before it.

    Attributes:
        runs: All that it has.
        new: Those that it cannot take over from one before it.
        hours: Of these, and of tunings that none before it has.
    """

    experiment: Experiment
    runs: int
    new: int
    hours: float


def shares() -> list[Share]:
    """Every experiment that trains; radii that are not chosen yet count as the usual ones."""
    made: set[str] = set()
    tuned: set[str] = set()
    found: list[Share] = []
    for name in ORDER:
        experiment = EXPERIMENTS[name]
        runs, further = (
            [run.changed(seed=seed) for seed in range(experiment.seeds) for run in each]
            for each in (experiment.runs("cpu"), experiment.further_runs("cpu"))
        )
        known = made if experiment.takes_over else set[str]()
        new = {settings_of(run): run for run in runs if settings_of(run) not in known}
        trained = [*new.values(), *further]
        tunings = [tuning for tuning in experiment.tunings if tuning not in tuned]
        hours = core_hours(trained) + sum(map(tuning_hours, tunings))
        found.append(Share(experiment, len(runs) + len(further), len(trained), hours))
        made.update(new)
        tuned.update(tunings)
    return found


def recorded(experiment: Experiment, results: Path) -> str:
    """Whether there is a record, and whether it is of the present edition."""
    file = results / "reproduce" / experiment.id / RESULTS
    outcome = read_outcome(file) if file.exists() else None
    if outcome is None:
        return "no"
    planner = experiment.planner
    is_present = planner is None or outcome.about.startswith(planner("cpu", {}).heading)
    return "yes" if is_present else "another edition"


def recorded_part(share: Share, results: Path) -> str:
    """The same of an experiment that trains, and how many of its runs where some are missing."""
    found = recorded(share.experiment, results)
    made = len(_recorded_runs(share.experiment, results))
    return f"{made} of {share.runs} runs" if found == "yes" and made < share.runs else found


def recorded_hours(experiment: Experiment, results: Path) -> float | None:
    """What the runs of a record took; those of other tables are counted there."""
    lines = _recorded_runs(experiment, results)
    own = [core_hours_of(line) for line in lines if "made_as" not in line]
    return sum(own) if own else None


def _recorded_runs(experiment: Experiment, results: Path) -> list[dict[str, Any]]:
    file = results / "reproduce" / experiment.id / "runs.jsonl"
    return read_json_lines(file) if file.exists() else []


def budget_table(results: Path) -> Table:
    """Planned and recorded core-hours of all experiments that train."""
    rows = [
        row(
            *(f"`{s.experiment.id}`", s.experiment.seeds, s.runs, s.new),
            number_cell(s.hours, ".1f"),
            recorded_part(s, results),
            number_cell(recorded_hours(s.experiment, results), ".1f"),
        )
        for s in shares()
    ]
    columns = ("", "seeds", "runs", "new", "core-hours", "recorded", "hours of its runs")
    return Table("Core-hours", columns, tuple(rows))


def core_hours_block(results: Path) -> list[str]:
    """The table in Markdown, with its sum."""
    whole = sum(share.hours for share in shares())
    measured = [e for name, e in EXPERIMENTS.items() if name not in ORDER]
    lacking = [f"`{e.id}`" for e in measured if recorded(e, results) == "no"]
    also = f"; not recorded of these: {', '.join(lacking)}" if lacking else ", all recorded"
    names = ", ".join(f"`{e.id}`" for e in measured)
    return [
        *as_markdown(budget_table(results)),
        "",
        f"All in all {whole:.0f} core-hours. Experiments that train nothing: {names}{also}.",
    ]
