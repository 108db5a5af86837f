"""What the fuzz trials read: each target writes good files, damages one, and reads it back.

A target's `read` gives what was read, to be compared with what the good files gave.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sampa.lab.conditions import Conditions
from sampa.lab.data.cache import CacheEntry
from sampa.lab.data.cifar import LAYOUTS, _read_archive, _read_packed
from sampa.lab.files import remove
from sampa.lab.report.records import read_record
from sampa.lab.training import checkpoint
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.manifest import MANIFEST, CheckpointError, digest_of, sha256
from tests.lab.data.makers import members, small, write_archive, write_strips
from tests.lab.oddities import KINDS, odd_file
from tests.lab.training.runs import tiny_run
from tools.stress import sharded_checkpoint
from tools.stress.mutations import mutate_bytes, mutate_json

ODD = 0.1  # of the trials: a pipe, a link, a folder or a terabyte instead of other bytes
REFUSALS = (ValueError, OSError)
STATE = {
    "model": {"weight": torch.arange(6.0).view(2, 3), "count": torch.tensor(7)},
    "optimizer": {
        "state": {0: {"momentum": torch.ones(3)}},
        "groups": [{"lr": 0.1, "params": [0]}],
    },
    "loop": {"place": {"position": 20, "best": float("-inf")}, "metrics_size": 3},
}


@dataclass
class Target:
    """One kind of input.

    Attributes:
        folder: Where its files are.
        read: Reads them.
        error: What `read` may raise.
        detects: Whether every change of bytes that is read must raise; False where a file carries
            no hash, so that it may describe something else that is just as good.
        names: What a message may call it, other than by its folder.
        repair: After the damage: make hashes right again, as someone would who knows the format.
    """

    folder: Path
    read: Callable[[], Any]
    error: type[Exception] | tuple[type[Exception], ...]
    detects: bool = True
    names: tuple[str, ...] = ()
    repair: Callable[[Path], None] = field(default=lambda file: None)

    def __post_init__(self) -> None:
        self.files = sorted(p for p in self.folder.rglob("*") if p.is_file())
        self.good = {file: file.read_bytes() for file in self.files}
        self.expected = self.read()

    def damage(self, rng: random.Random) -> bool:
        """Damage one file, or put something else in its place; whether its bytes changed."""
        file = rng.choice(self.files)
        if rng.random() < ODD:
            odd_file(file, rng.choice(KINDS))
            return True
        before = self.good[file]
        is_json = file.suffix == ".json" and rng.random() < 0.6
        after = mutate_json(before, rng) if is_json else mutate_bytes(before, rng)
        file.write_bytes(after)
        self.repair(file)
        return after != before

    def restore(self) -> None:
        for file, content in self.good.items():
            if file.is_symlink() or not file.is_file():  # what is written to a pipe waits there
                remove(file)
            file.write_bytes(content)


def checkpoints(folder: Path) -> Target:
    path = checkpoint.save(folder, checkpoint.NEWEST, 20, STATE)
    return Target(folder, lambda: _plain(checkpoint.load(path)), CheckpointError)


def sharded_checkpoints(folder: Path) -> Target:
    """What two ranks wrote, read by one."""
    path = sharded_checkpoint.write(folder)
    return Target(folder, lambda: _plain(checkpoint.load(path)), CheckpointError)


def resealed(make: Callable[[Path], Target], folder: Path) -> Target:
    """With hashes that are right: what is inside must still be no more than data."""
    return replace(make(folder), detects=False, repair=_seal)


def _seal(file: Path) -> None:
    if file.name == MANIFEST:
        return
    manifest = json.loads(file.with_name(MANIFEST).read_bytes())
    del manifest["digest"]
    manifest["sha256"][file.name] = sha256(file.read_bytes())
    manifest["bytes"][file.name] = file.stat().st_size
    manifest["digest"] = digest_of(manifest)
    file.with_name(MANIFEST).write_text(json.dumps(manifest))


def run_files(folder: Path) -> Target:
    """A run that is to be resumed: settings are those that were asked for, or it is refused."""
    run = tiny_run()
    (folder / "checkpoints" / "step-000000003").mkdir(parents=True)  # there is something to lose
    (folder / "run.json").write_text(
        json.dumps(
            {"id": "0" * 32, "run": run.as_json(), "conditions": Conditions.now().values}, indent=2
        )
    )

    def read() -> Any:
        opened = RunFolder(folder)
        try:
            opened.open(run, resume=True)
            return {**opened.run().as_json(), "about": ""}
        finally:
            opened.close()

    return Target(folder, read, REFUSALS)


def records(folder: Path) -> Target:
    """A finished run, as the report reads it."""
    written = RunFolder(folder)
    written.write("run.json", {"run": tiny_run().as_json(), "conditions": Conditions.now().values})
    written.append({"epoch": 0, "train_loss": 2.0, "validation_accuracy": 50.0})
    result = {"test": {"accuracy": 90.0}, "best_epoch": 0, "seconds": 1.0}
    written.write("result.json", result)
    names = ("run.json", "result.json", "metrics.jsonl", "field of run", "run.", "run ")
    read = lambda: repr(read_record(folder, "x", None))  # noqa: E731
    return Target(folder, read, REFUSALS, detects=False, names=names)


def archives(folder: Path) -> Target:
    layout = small(LAYOUTS[10])
    path = write_archive(folder, layout, members(layout))
    return Target(folder, lambda: _arrays(_read_archive(layout, "test", [path])), REFUSALS)


def strips(folder: Path) -> Target:
    layout = small(LAYOUTS[10])
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    path = write_strips(folder / "test.zip", images, np.arange(4, dtype=np.uint8))
    return Target(folder, lambda: _arrays(_read_packed(layout, "test", [path])), REFUSALS)


def caches(folder: Path) -> Target:
    """Decoded data: damage is repaired, silently, by decoding again."""
    entry = CacheEntry(folder, "x-0123", lambda: ({"images": np.arange(100)}, {"mean": [0.5]}))
    entry.arrays()

    def read() -> Any:
        return [entry.facts(), entry.arrays()["images"].tolist()]

    return Target(folder, read, OSError)


TARGETS: dict[str, Callable[[Path], Target]] = {
    "checkpoint": checkpoints,
    "resealed checkpoint": partial(resealed, checkpoints),
    "sharded checkpoint": sharded_checkpoints,
    "resealed sharded checkpoint": partial(resealed, sharded_checkpoints),
    "run.json": run_files,
    "record": records,
    "tar archive": archives,
    "zip archive": strips,
    "cache": caches,
}


def open_targets(folder: Path) -> dict[str, Target]:
    shutil.rmtree(folder, ignore_errors=True)
    made = {}
    for name, make in TARGETS.items():
        place = folder / name.replace(" ", "-")
        place.mkdir(parents=True)
        made[name] = make(place)
    return made


def _plain(loaded: checkpoint.Checkpoint) -> Any:
    return [loaded.step, repr(loaded.state)]


def _arrays(decoded: tuple[np.ndarray, np.ndarray, list[str]]) -> Any:
    images, labels, classes = decoded
    return [images.tobytes(), labels.tolist(), classes]
