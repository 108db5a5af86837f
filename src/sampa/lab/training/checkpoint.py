"""Checkpoints that survive a crash at any instant.

A checkpoint is a folder with safetensors and JSON files and a manifest: the id of the run, sizes
and SHA-256 hashes of the files, the step of the best model. It is written under a temporary name,
flushed to the disk, read back, and renamed: it exists whole or not at all. A damaged one is
reported and the one before it is used; one of another run, or another version, is refused.

Where the state is sharded over processes, each writes and hashes files of its own into the same
folder, and the first of them the manifest.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as tensor_bytes
from torch import Tensor

from sampa.lab.files import parse_json, remove
from sampa.lab.training.claim import Owner
from sampa.lab.training.manifest import (
    SCHEMA,
    CheckpointError,
    ForeignCheckpoint,
    Recorded,
    read_checked,
    read_manifest,
    require_readable,
    sync_folder,
    write_file,
    write_manifest,
)
from sampa.lab.training.shards import UNSHARDED, Assembly, Shards
from sampa.lab.training.trees import Json, flatten, shards_in, unflatten

NEWEST, BEST = "step-", "best-"  # to go on from, and to be reported

on_point: Callable[[str], None] | None = None
"""Called at each named instant of saving and pruning; tests crash there."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read and whose hashes are right."""

    path: Path
    step: int
    state: dict[str, Any]


ANYONE = Owner()


def checkpoint_path(folder: Path, kind: str, step: int) -> Path:
    """Where a checkpoint is; their names sort by step."""
    return folder / f"{kind}{step:09}"


def save(
    folder: Path,
    kind: str,
    step: int,
    state: dict[str, Any],
    *,
    owner: Owner = ANYONE,
    best: int | None = None,
    shards: Shards = UNSHARDED,
) -> Path:
    """Write a checkpoint, whole or not at all; when this returns, it was read back.

    Args:
        folder: Of the run's checkpoints.
        kind: `NEWEST` or `BEST`.
        step: Batches seen so far.
        state: Anything made of tensors, numbers and text, by the name of the part.
        owner: The run.
        best: The step of the best model so far, which is kept as long as this checkpoint.
        shards: Which part of the state this process has; all of them call this.

    Raises:
        CheckpointError: If the disk did not take it. Older checkpoints are as they were.
    """
    final = checkpoint_path(folder, kind, step)
    partial = folder / f".{final.name}.partial"
    about = {"schema": SCHEMA, "step": step, "run_id": owner.id, "best": best}
    owner.check()
    try:
        shards.once(lambda: _make_partial(folder, partial))
        written = shards.together(lambda: _write_parts(partial, state, shards))
        files = {file: recorded for each in written for file, recorded in each.items()}
        shards.once(
            lambda: _complete(partial, final, about | {"parts": sorted(state)}, files, owner)
        )
    except (OSError, SafetensorError) as error:
        if shards.is_first:
            remove(partial)
        raise CheckpointError(
            f"checkpoint {final} could not be written ({error}); earlier checkpoints are intact: "
            "free space or choose another --out"
        ) from error
    return final


def load(path: Path, owner: Owner = ANYONE, shards: Shards = UNSHARDED) -> Checkpoint:
    """Read a checkpoint and check every byte of it.

    Args:
        path: Its folder.
        owner: The run.
        shards: Which part of sharded tensors is to be kept, however they were cut when saved.

    Raises:
        CheckpointError: Naming the file and what is wrong with it.
    """
    manifest = read_manifest(path)
    if owner.id and manifest["run_id"] != owner.id:
        raise ForeignCheckpoint(
            f"checkpoint {path} is of the run {manifest['run_id']!r}, and run.json of "
            f"{owner.id!r}: remove it, or choose another --out"
        )
    try:
        state = {part: _read_part(path, part, manifest, shards) for part in manifest["parts"]}
    except (KeyError, ValueError, TypeError, SafetensorError, MemoryError) as error:
        raise CheckpointError(f"checkpoint {path} does not hold together: {error!r}") from error
    return Checkpoint(path, manifest["step"], state)


def newest(
    folder: Path,
    kind: str,
    report: Callable[[str], None],
    owner: Owner = ANYONE,
    shards: Shards = UNSHARDED,
) -> Checkpoint | None:
    """The newest checkpoint that is whole; damaged ones are reported and passed over.

    Raises:
        ForeignCheckpoint: If the newest that is not damaged is of another run or version.
    """
    for path in sorted(_named(folder, kind), reverse=True):
        try:
            return load(path, owner, shards)
        except ForeignCheckpoint:
            raise
        except CheckpointError as error:
            report(f"{error}; trying the one before it")
    return None


def passed_over(found: Checkpoint) -> set[Path]:
    """The damaged ones, newer than what `newest` found."""
    kind, folder = found.path.name.split("-")[0], found.path.parent
    return {path for path in _named(folder, f"{kind}-") if path > found.path}


def load_best(
    folder: Path, step: int, owner: Owner = ANYONE, shards: Shards = UNSHARDED
) -> dict[str, Any]:
    """The state of the best model, which was saved at that step.

    Raises:
        CheckpointError: If it is damaged: another model's score would be no answer.
    """
    try:
        return load(checkpoint_path(folder, BEST, step), owner, shards).state
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}; it is the model to be reported: remove {folder} and resume, which trains "
            "again from the beginning"
        ) from error


def prune(
    folder: Path, step: int, keep: int, *, owner: Owner = ANYONE, damaged: Collection[Path] = ()
) -> None:
    """Remove old checkpoints, oldest first, what no checkpoint needs, and what a crash left over.

    Args:
        folder: Of the run's checkpoints.
        step: Of the newest, which is good. Later steps, from before the run went
            back to an older checkpoint, do not count.
        keep: How many stay.
        owner: The run.
        damaged: Checkpoints that are known to be: they do not count either, and go.
    """
    owner.check()
    newest_good = checkpoint_path(folder, NEWEST, step)
    found = sorted(path for path in _named(folder, NEWEST) if path <= newest_good)
    good = [path for path in found if path not in damaged]
    for path in [*(path for path in damaged if path in found), *good[:-keep]]:
        _point("prune: before removal")
        _remove(path)
    for path in _unnamed_best(folder):
        _point("prune: before removal")
        _remove(path)
    for leftover in [*folder.glob(f".{NEWEST}*"), *folder.glob(f".{BEST}*")]:
        remove(leftover)


def _unnamed_best(folder: Path) -> list[Path]:
    """The best models that no checkpoint names; none if one cannot say which it names."""
    try:
        named = {read_manifest(path)["best"] for path in _named(folder, NEWEST)}
    except CheckpointError:
        return []
    kept = {checkpoint_path(folder, BEST, step) for step in named if step is not None}
    return [path for path in sorted(_named(folder, BEST)) if path not in kept]


def _remove(path: Path) -> None:
    """Remove a checkpoint; a crash in between leaves no half-empty one under a valid name."""
    if not os.path.lexists(path):
        return
    doomed = path.with_name(f".{path.name}.doomed")
    remove(doomed)
    path.rename(doomed)
    _point("removal: after rename")
    remove(doomed)


def _named(folder: Path, kind: str) -> Iterator[Path]:
    return (p for p in folder.glob(f"{kind}*") if p.is_dir() and not p.is_symlink())


# ---- one checkpoint --------------------------------------------------------------------------


def _make_partial(folder: Path, partial: Path) -> None:
    if folder.is_symlink():
        raise OSError(f"{folder} must be a folder, not a symbolic link")
    folder.mkdir(exist_ok=True)
    remove(partial)
    partial.mkdir()


def _write_parts(folder: Path, state: dict[str, Any], shards: Shards) -> dict[str, Recorded]:
    """Write what this process has of the state; what is to be remembered of its files."""
    files: dict[str, Recorded] = {}
    for part, tree in state.items() if shards.writes else ():  # one by one: each is in memory twice
        skeleton, tensors = flatten(tree)
        own = list(shards_in(skeleton))
        if not shards.is_first:  # what is not sharded is the same everywhere
            skeleton = [shard.as_json() for shard in own]
            tensors = {shard.name: tensors[shard.name] for shard in own}
        if own or shards.is_first:
            _point(f"save: before {part}.safetensors")
            name = shards.file_name(part) if own else part
            files |= _write_files(folder / name, skeleton, tensors)
    return files


def _write_files(path: Path, skeleton: Json, tensors: dict[str, Tensor]) -> dict[str, Recorded]:
    contents = {
        f"{path.name}.safetensors": tensor_bytes(tensors),
        f"{path.name}.json": json.dumps(skeleton).encode(),
    }
    return {file: write_file(path.with_name(file), content) for file, content in contents.items()}


def _complete(
    partial: Path, final: Path, about: dict[str, Any], files: dict[str, Recorded], owner: Owner
) -> None:
    """Turn files that all are written into a checkpoint."""
    _point("save: before manifest")
    write_manifest(partial, about, files)
    sync_folder(partial)
    require_readable(partial)
    _point("save: before rename")
    owner.check()
    _remove(final)
    partial.rename(final)
    _point("save: after rename")
    sync_folder(final.parent)


def _read_part(path: Path, part: str, manifest: dict[str, Any], shards: Shards) -> Any:
    """One part of the state; of several files of it one after the other is in memory."""
    assembly, first = Assembly(shards), None
    for name in _names_of(part, manifest):
        skeleton = parse_json(read_checked(path / f"{name}.json", manifest))
        tensors = read_tensors(read_checked(path / f"{name}.safetensors", manifest))
        assembly.add(skeleton, tensors)
        plain = tensors.keys() - {shard.name for shard in shards_in(skeleton)}
        first = first or (skeleton, {name: tensors[name] for name in plain})
    assert first is not None
    return unflatten(*first, assembly.tensors())


def _names_of(part: str, manifest: dict[str, Any]) -> list[str]:
    """The names of a part's files, without their endings, in the order of what they hold."""
    sharded = re.compile(rf"{re.escape(part)}-(\d+)-of-(\d+)\.json")
    found = [match for match in map(sharded.fullmatch, manifest["sha256"]) if match]
    return [f"{part}-{i + 1}-of-{len(found)}" for i in range(len(found))] or [part]


def _point(name: str) -> None:
    if on_point is not None:
        on_point(name)
