"""The network of a run: one of ours, or the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from sampa.lab.data.places import data_folder
from sampa.lab.files import place_below
from sampa.lab.models import build
from sampa.lab.models.own import build_own
from sampa.lab.named import is_own
from sampa.lab.training.own import require_named
from sampa.lab.training.run import Run

BELOW_DATA = "published"  # the option for weights that are kept with the data sets


def network_of(run: Run, offered: dict[str, Any], data_dir: str | Path | None = None) -> nn.Module:
    """The network of a run, ready to train; new weights come from torch's global generator.

    Args:
        run: Names it.
        offered: What its task knows, such as the number of classes.
        data_dir: Where data sets are, and weights that a recipe of ours names.

    Raises:
        FileNotFoundError: If there are no such weights.
        ValueError: If it is code that the user did not name, or there is no such network.
    """
    require_named(run)
    if is_own(run.model.name):
        return build_own(run.model.name, run.model.options, offered)
    options = dict(run.model.options)
    if BELOW_DATA in options:
        place = options.pop(BELOW_DATA)
        options["path"] = place_below(data_folder(data_dir), place, BELOW_DATA)
    return build(run.model.name, **options, **offered)
