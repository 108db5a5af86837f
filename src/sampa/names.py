"""Names of methods that people type, beside those of the catalog; nothing here imports torch."""

from __future__ import annotations

import re

ALIASES = {"sgd": "base", "adamw": "base", "adam": "base", "m-sam": "msam", "sampa-0.2": "sampa"}

_SAMPA_WITH_LAMBDA = re.compile(r"sampa-([01](?:\.\d+)?)")


def lambda_in(name: str) -> float | None:
    """The λ of a name such as `sampa-0.1`; None if it has none."""
    match = _SAMPA_WITH_LAMBDA.fullmatch(name)
    return float(match.group(1)) if match else None
