"""All that a run comes to, and how it differs from the same run left alone."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from sampa.lab.training.run import Run
from tests.lab.training.runs import outcome
from tools.stress.sessions import Ended, session

Everything = dict[str, Any]
TIMES = ("seconds", "core_seconds")

_references: dict[str, Everything] = {}


def everything(out: Path, ended: Ended) -> Everything:
    """Weights, base state, held gradient and batch, generator, position, best model, metrics."""
    *_, saved = sorted((out / "checkpoints").glob("step-*"))
    loop = json.loads((saved / "loop.json").read_text())
    (best,) = (out / "checkpoints").glob("best-*")
    return {
        **outcome(out, int(saved.name.removeprefix("step-"))),
        "loop": [pair for pair in _flat(loop) if pair[0] not in TIMES],
        "best": {file.name: file.read_bytes() for file in best.glob("model*")},
        "files": sorted(str(p.relative_to(out)) for p in out.rglob("*")),
        # A session that finds a finished run comes to no place.
        **{f"at the end, rank {r}": place for r, place in enumerate(ended.places) if place},
    }


def _flat(node: Any) -> list[Any]:
    """The pairs of nested dictionaries, as `trees.flatten` writes them."""
    pairs = node["$dict"] if isinstance(node, dict) else []
    return [leaf for key, v in pairs for leaf in (_flat(v) or [[key, v]])]


def reference(run: Run, *, world: int = 1, **settings: Any) -> Everything:
    """The same run, left alone; made once."""
    key = json.dumps([run.as_json(), world, settings])
    if key not in _references:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            options: dict[str, Any] = {"world": world, "keep": 1, **settings}
            ended = session(run, folder / "run", folder / "session", **options)
            assert ended.codes == [0] * world, ended.output
            _references[key] = everything(folder / "run", ended)
    return _references[key]


def differences(found: Everything, expected: Everything) -> list[str]:
    """What is not as in the uninterrupted run; where that had one rank, a second must be there."""
    expected = {"at the end, rank 1": expected["at the end, rank 0"], **expected}
    return [name for name in found if found[name] != expected.get(name)]
