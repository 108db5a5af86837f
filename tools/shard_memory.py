"""Count what a rank keeps in memory at the peak of a step: replicas of a model, and shards of one.

    python -m tools.shard_memory

Counts the tensors (weights, gradients, optimizer state, copies, what is exchanged) of steps on real
ranks with gloo, writes results/memory/sharded.json, and the table of docs/how-to/fsdp.md from it.
The network has so many parameters that its activations hardly count, and 18 layers, of which one or
two are gathered at a time.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F

import sampa
from sampa.execution import lookahead
from sampa.execution.executor import Executor
from sampa.lab.bench.counting import KernelCounter
from sampa.lab.conditions import Conditions
from sampa.lab.results.table import Table, as_markdown, row
from sampa.lab.training.sharding import shard_model
from sampa.method import vectors_of
from sampa.vectors.vector import is_sharded, local
from tests.problems import BASES
from tests.ranks import run_ranks

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "how-to" / "fsdp.md"
RECORD = ROOT / "results" / "memory" / "sharded.json"
BEGIN, END = "<!-- memory: begin -->", "<!-- memory: end -->"
OPTIMIZERS = {"sgd-momentum": "SGD with momentum", "adamw-fused": "AdamW"}


@dataclass(frozen=True)
class Setting:
    """How a method is carried out."""

    method: str
    branches: int
    data_ranks: int
    sharded: bool = False

    @property
    def ranks(self) -> int:
        return self.branches * self.data_ranks


SETTINGS = {
    "SAM, one device": Setting("sam", 1, 1),
    "DDP-SAM, 2 ranks": Setting("sam", 1, 2),
    "SAMPa, 2 × 1": Setting("sampa", 2, 1),
    "SAM, 1 × 2 sharded": Setting("sam", 1, 2, sharded=True),
    "SAMPa, 2 × 2 sharded": Setting("sampa", 2, 2, sharded=True),
}


class ResizedCounter(KernelCounter):
    """Also sees that memory is given back while its tensor lives on, as FSDP does."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, Tensor) and hasattr(kind, "to_local") for kind in types):
            return NotImplemented  # what the DTensor does with its shards is looked at
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _note(self, values: list[Any]) -> None:
        for t in values:
            if isinstance(t, Tensor) and t.is_cpu and not is_sharded(t):
                storage = t.untyped_storage()
                reference = StorageWeakRef(storage)
                _, before = self._alive.get(reference.cdata, (None, 0))
                self._alive[reference.cdata] = reference, storage.nbytes()
                self._most += storage.nbytes() - before
        if self._most > self.peak:
            found = {key: (r, _bytes_of(r)) for key, (r, _) in self._alive.items()}
            self._alive = {key: pair for key, pair in found.items() if not pair[0].expired()}
            self._most = sum(size for _, size in self._alive.values())
            self.peak = max(self.peak, self._most)


def _bytes_of(reference: StorageWeakRef) -> int:
    storage: Any = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
    return 0 if storage is None else storage.nbytes()


def wide_net() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(256, 256) for _ in range(16)]
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), *layers, nn.Linear(256, 10))


def peak_of_a_step(setting: Setting, base: str) -> float:
    """In sizes of all parameters; the same on all ranks, or it is the largest."""
    lookahead.LARGE_MODEL = 0  # as for a large model
    model = wide_net()
    size = sum(p.nbytes for p in model.parameters())
    mesh = sampa.mesh(branches=setting.branches)
    if setting.sharded:
        shard_model(model, mesh)
    executor: Executor = (
        sampa.distribute(model, mesh=mesh, shared_memory=False)
        if setting.ranks > 1
        else sampa.Serial(model)
    )
    optimizer = sampa.METHODS[setting.method](BASES[base](model.parameters()), executor=executor)
    batches = [(torch.randn(2, 64), torch.tensor([0, 1])) for _ in range(5)]

    network = executor.model or model

    def loss_fn(batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(network(batch[0]), batch[1])

    for batch in batches[:3]:
        optimizer.step(loss_fn, batch)
    kept = [list(v) for v in vectors_of(optimizer._carried.method_state)]
    states = [t for state in optimizer.base.state.values() for t in state.values()]
    alive = local(t for t in [*model.parameters(), *states] if isinstance(t, Tensor))
    with ResizedCounter([alive, kept]) as counter:
        optimizer.step(loss_fn, batches[3])  # to see what is kept elsewhere, such as DDP's buckets
        counter.peak = 0
        optimizer.step(loss_fn, batches[4])
    return counter.peak / size


def measured() -> dict[str, dict[str, float]]:
    """For each setting and base optimizer, the largest peak of a rank."""
    return {
        name: {
            base: round(max(run_ranks(setting.ranks, peak_of_a_step, setting, base)), 2)
            for base in OPTIMIZERS
        }
        for name, setting in SETTINGS.items()
    }


def table(peaks: dict[str, dict[str, float]]) -> Table:
    rows = tuple(row(name, *found.values()) for name, found in peaks.items())
    title = "Peak memory of a rank in a step, counted tensors, in sizes of the model"
    return Table(title, ("", *OPTIMIZERS.values()), rows)


def updated(page: str) -> str:
    """The page with the table of the record between its marks."""
    shown = table(json.loads(RECORD.read_text())["peaks"])
    before, rest = page.split(BEGIN)
    part = "\n".join([f"{shown.title}:", "", *as_markdown(shown)])
    return f"{before}{BEGIN}\n\n{part}\n\n{END}{rest.split(END)[1]}"


def main() -> int:
    allow_dirty = "--allow-dirty" in sys.argv[1:]
    found = Conditions.now()
    found.require_committed("this table", allow_dirty=allow_dirty)
    record = {
        "command": "python -m tools.shard_memory",
        "peaks": measured(),
        "conditions": found.values,
    }
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    PAGE.write_text(updated(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
