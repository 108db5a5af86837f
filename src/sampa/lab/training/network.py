"""The network of a run: one of ours, or the user's own."""

from __future__ import annotations

from typing import Any

from torch import nn

from sampa.lab.models import build
from sampa.lab.models.own import build_own
from sampa.lab.named import is_own
from sampa.lab.training.own import require_named
from sampa.lab.training.run import Run


def network_of(run: Run, offered: dict[str, Any]) -> nn.Module:
    """The network of a run, ready to train; new weights come from torch's global generator.

    Args:
        run: Names it.
        offered: What its task knows, such as the number of classes.

    Raises:
        ValueError: If it is code that the user did not name, or there is no such network.
    """
    require_named(run)
    if is_own(run.model.name):
        return build_own(run.model.name, run.model.options, offered)
    return build(run.model.name, **run.model.options, **offered)
