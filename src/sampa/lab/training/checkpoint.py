"""Checkpoints that survive a crash at any instant.

A checkpoint is a folder with safetensors and JSON files and a manifest of their SHA-256 hashes. It
is written under a temporary name, flushed to the disk, and renamed: it exists whole or not at
all. A damaged one is reported and the one before it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save_file

from sampa.lab.training.trees import flatten, unflatten

SCHEMA = 1
MANIFEST = "manifest.json"
NEWEST, BEST = "step-", "best-"  # to go on from, and to be reported

on_point: Callable[[str], None] | None = None
"""Called at each named instant of saving and pruning; tests crash there."""


class CheckpointError(OSError):
    """A checkpoint that cannot be written, or must not be read."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read and whose hashes are right."""

    path: Path
    step: int
    state: dict[str, Any]


def checkpoint_path(folder: Path, kind: str, step: int) -> Path:
    """Where a checkpoint is; their names sort by step."""
    return folder / f"{kind}{step:09}"


def save(folder: Path, kind: str, step: int, state: dict[str, Any]) -> Path:
    """Write a checkpoint, whole or not at all.

    Args:
        folder: Of the run's checkpoints.
        kind: `NEWEST` or `BEST`.
        step: Batches seen so far.
        state: Anything made of tensors, numbers and text, by the name of the part.

    Raises:
        CheckpointError: If the disk did not take it. Older checkpoints are as they were.
    """
    final = checkpoint_path(folder, kind, step)
    partial = folder / f".{final.name}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        hashes = {part: _write_part(partial, part, tree) for part, tree in state.items()}
        files = {file: digest for part in hashes.values() for file, digest in part.items()}
        _point("save: before manifest")
        manifest = {"schema": SCHEMA, "step": step, "parts": sorted(state), "sha256": files}
        manifest |= {"digest": _digest(manifest)}
        _write(partial / MANIFEST, json.dumps(manifest, indent=2).encode())
        _sync_folder(partial)
        _point("save: before rename")
        if final.exists():
            _remove(final)
        partial.rename(final)
        _point("save: after rename")
        _sync_folder(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(
            f"checkpoint {final} could not be written ({error}); earlier checkpoints are intact: "
            "free space or choose another --out"
        ) from error
    return final


def load(path: Path) -> Checkpoint:
    """Read a checkpoint and check every byte of it.

    Raises:
        CheckpointError: Naming the file and what is wrong with it.
    """
    manifest = _read_manifest(path)
    contents = {file: _read_checked(path / file, d) for file, d in manifest["sha256"].items()}
    try:
        state = {part: _read_part(part, contents) for part in manifest["parts"]}
    except (KeyError, ValueError, TypeError, RecursionError, SafetensorError) as error:
        raise CheckpointError(f"checkpoint {path} does not hold together: {error}") from error
    return Checkpoint(path, manifest["step"], state)


def newest(folder: Path, kind: str, report: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that is whole; damaged ones are reported and passed over."""
    for path in sorted(_named(folder, kind), reverse=True):
        try:
            return load(path)
        except CheckpointError as error:
            report(f"{error}; trying the one before it")
    return None


def load_best(folder: Path, step: int) -> dict[str, Any]:
    """The state of the best model, which was saved at that step.

    Raises:
        CheckpointError: If it is damaged: another model's score would be no answer.
    """
    try:
        return load(checkpoint_path(folder, BEST, step)).state
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}; it is the model to be reported: remove {folder} and resume, which trains "
            "again from the beginning"
        ) from error


def prune(folder: Path, kind: str, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints, oldest first, and what a crash left over."""
    for path in sorted(_named(folder, kind))[:-keep]:
        _point("prune: before removal")
        _remove(path)
    for leftover in folder.glob(f".{kind}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _remove(path: Path) -> None:
    """Remove a checkpoint; a crash in between leaves no half-empty one under a valid name."""
    doomed = path.with_name(f".{path.name}.doomed")
    shutil.rmtree(doomed, ignore_errors=True)
    path.rename(doomed)
    _point("removal: after rename")
    shutil.rmtree(doomed, ignore_errors=True)


def _named(folder: Path, kind: str) -> Iterator[Path]:
    return (p for p in folder.glob(f"{kind}*") if p.is_dir() and not p.is_symlink())


def _write_part(folder: Path, part: str, tree: Any) -> dict[str, str]:
    """Write one part of the state; the hashes of its files by name."""
    skeleton, tensors = flatten(tree)
    tensor_file, json_file = f"{part}.safetensors", f"{part}.json"
    _point(f"save: before {tensor_file}")
    save_file(tensors, folder / tensor_file)
    _sync_file(folder / tensor_file)
    _write(folder / json_file, json.dumps(skeleton).encode())
    return {name: _sha256((folder / name).read_bytes()) for name in (tensor_file, json_file)}


def _read_part(part: str, contents: dict[str, bytes]) -> Any:
    skeleton = json.loads(contents[f"{part}.json"])
    return unflatten(skeleton, read_tensors(contents[f"{part}.safetensors"]))


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"checkpoint {path} has no readable {MANIFEST}: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        schema = manifest.get("schema") if isinstance(manifest, dict) else manifest
        raise CheckpointError(
            f"checkpoint {path} must have schema {SCHEMA}, got {schema!r}; "
            "read it with the version of sampa that wrote it"
        )
    files = manifest.get("sha256")
    parts = manifest.get("parts")
    well_formed = (
        isinstance(files, dict)
        and isinstance(parts, list)
        and isinstance(manifest.get("step"), int)
        and all(isinstance(f, str) and Path(f).name == f for f in files)
    )
    if not well_formed:
        raise CheckpointError(f"checkpoint {path} has a {MANIFEST} that sampa did not write")
    if manifest.pop("digest", None) != _digest(manifest):
        raise CheckpointError(f"checkpoint {path} has a damaged {MANIFEST}: its digest is wrong")
    return manifest


def _read_checked(file: Path, expected: str) -> bytes:
    try:
        if not file.is_file() or file.is_symlink():  # a pipe would never end
            raise FileNotFoundError("it must be an ordinary file")
        contents = file.read_bytes()
    except OSError as error:
        raise CheckpointError(f"checkpoint file {file} cannot be read: {error}") from error
    if _sha256(contents) != expected:
        raise CheckpointError(f"checkpoint file {file} is damaged: its hash is not the manifest's")
    return contents


def _digest(manifest: dict[str, Any]) -> str:
    """The manifest's own hash: nothing else would notice another step."""
    return _sha256(json.dumps(manifest, sort_keys=True).encode())


def _sha256(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()


def _write(file: Path, contents: bytes) -> None:
    file.write_bytes(contents)
    _sync_file(file)


def _sync_file(file: Path) -> None:
    with file.open("rb+") as handle:
        os.fsync(handle.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _point(name: str) -> None:
    if on_point is not None:
        on_point(name)
