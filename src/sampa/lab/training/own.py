"""What of a run is the user's own, and the rule for it: only what the user names is executed.

A run that was read from a file may name code, or weights. It is not trusted to: the user names them
again on the command line, or nothing is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from sampa.lab.named import fingerprint, is_code, is_own
from sampa.lab.training.run import DataSpec, ModelSpec, Run


@dataclass(frozen=True)
class Named:
    """What the user named on the command line; None where nothing.

    Attributes:
        data: A data set of ours, folder:PATH, hf:PATH, or code.
        model: A network of ours, hf:PATH, or code.
        weights: The path of pretrained weights.
    """

    data: str | None = None
    model: str | None = None
    weights: Path | None = None


def as_named(run: Run, named: Named) -> Run:
    """The run with what the user named, and with the fingerprints of all that is their own.

    Raises:
        ValueError: If it was read from a file that names code or weights, and the user did not.
    """
    if named.data is not None:
        run = replace(run, data=_with_data(run.data, named.data))
    if named.model is not None and named.model != run.model.name:
        # The options of another network of ours mean nothing to it.
        options = run.model.options if is_own(run.model.name) and is_own(named.model) else {}
        run = replace(run, model=ModelSpec(named.model, options))
    if named.weights is not None:
        options = {**run.model.options, "path": str(named.weights)}
        run = replace(run, model=replace(run.model, options=options))
    require_named(run, named)
    weights = run.model.options.get("path")
    if run.from_file and named.weights is None and weights is not None:
        raise ValueError(
            f"the run began from the weights {weights!r}, and a file is not trusted to name "
            "others; if you trust them, say where they are: --model-path"
        )
    return replace(run, from_file=False, sources=_sources(run))


def require_named(run: Run, named: Named | None = None) -> None:
    """Refuse a run from a file, if it names code that the user did not name.

    Raises:
        ValueError: Saying what to add to the command line.
    """
    told = named or Named()
    checks = [
        ("data", run.data.name, is_code(run.data.name) and told.data is None),
        ("model", run.model.name, is_own(run.model.name) and told.model is None),
    ]
    for role, name, is_strange in checks if run.from_file else ():
        if is_strange:
            raise ValueError(
                f"the {role} of the run is {name!r}, and a file is not trusted to name what is "
                f"executed or loaded; if you trust it, name it yourself: --{role} {name}"
            )


def _with_data(spec: DataSpec, name: str) -> DataSpec:
    """Other data; what a recipe does to the labels and the number of its own is not done to it."""
    if spec.name == name or is_own(spec.name):
        return replace(spec, name=name)
    return replace(spec, name=name, subset=None, label_noise=0.0, human_labels=None)


def _sources(run: Run) -> dict[str, dict[str, str]]:
    found = {"recipe": run.sources["recipe"]} if "recipe" in run.sources else {}
    for role, name in (("data", run.data.name), ("model", run.model.name)):
        if is_own(name):
            found[role] = fingerprint(name)
    return found
