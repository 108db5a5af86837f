"""The hyper-parameters of a run's method, told without torch: reports have no other need of it.

What is known of each method is in methods.json, which
`python -m sampa.lab.training.hyperparameters` writes from the catalog.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from sampa.lab.files import parse_json
from sampa.lab.training.run import Run
from sampa.messages import unknown
from sampa.names import ALIASES, lambda_in

BASE_NAMES = ("base", "sgd", "adamw", "adam")
_FILE = resources.files("sampa.lab.training").joinpath("methods.json")


@dataclass(frozen=True)
class Known:
    """A method of the catalog.

    Attributes:
        hyperparameters: Its own arguments, with their defaults.
        holds_batch: Whether it keeps a batch for the next step; None if that depends on them.
    """

    hyperparameters: dict[str, Any]
    holds_batch: bool | None


@cache
def known_methods() -> dict[str, Known]:
    """All methods, in the order of the catalog."""
    saved = parse_json(_FILE.read_bytes())
    return {name: Known(**values) for name, values in saved.items()}


def known_method(name: str) -> Known:
    """The method behind a name that people type, as `sampa.catalog.find_method` finds it.

    Raises:
        ValueError: Naming the nearest methods.
    """
    methods, lam = known_methods(), lambda_in(name)
    found = methods.get(ALIASES.get(name, name))
    if found is None and lam is not None:
        usual = methods["sampa"]
        found = Known({**usual.hyperparameters, "lam": lam}, usual.holds_batch)
    if found is None:
        raise ValueError(unknown("method", name, [*methods, *ALIASES]))
    return found


def given_options(run: Run, accepted: Collection[str], total_steps: int) -> dict[str, Any]:
    """What a run gives its method: the recipe's values, and the command line's.

    Raises:
        ValueError: If the method does not accept one.
    """
    options = dict(run.method_options)
    options |= {k: v for k, v in (("rho", radius_of(run)), ("lam", run.lam)) if v is not None}
    if "total_steps" in accepted:
        options.setdefault("total_steps", total_steps)
    strange = [name for name in options if name not in accepted]
    if strange:
        known = ", ".join(name for name in accepted if name not in ("base", "options"))
        raise ValueError(
            f"method {run.method} has no hyper-parameter {strange[0]}; it has {known or 'none'}"
        )
    return options


def radius_of(run: Run) -> float | None:
    """ρ as the command line or the recipe gives it; None leaves the method's own."""
    usual = run.rhos.get(ALIASES.get(run.method, run.method))
    return run.rhos.get(run.method, usual) if run.rho is None else run.rho


def epochs_of(run: Run) -> int:
    """The passes that a run makes; the base optimizer may be given more."""
    return run.base_epochs if run.method in BASE_NAMES and run.base_epochs else run.epochs


def catalog_as_json() -> str:
    """What methods.json must say."""
    import torch

    from sampa.catalog import METHODS
    from sampa.cost import hyperparameters
    from sampa.execution.serial import Serial

    found: dict[str, dict[str, Any]] = {}
    for name, factory in METHODS.items():
        base = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        kind: Any = type(factory(base, executor=Serial()).method)
        fixed = None if isinstance(kind.holds_batch, property) else kind.holds_batch
        found[name] = {"hyperparameters": hyperparameters(factory), "holds_batch": fixed}
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(str(_FILE)).write_text(catalog_as_json(), encoding="utf-8")
    sys.exit(0)
