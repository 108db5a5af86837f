"""Checkpoints that survive a crash at any instant.

A checkpoint is a folder with safetensors and JSON files and a manifest: the id of the run, sizes
and SHA-256 hashes of the files, the step of the best model. It is written under a temporary name,
flushed to the disk, read back, and renamed: it exists whole or not at all. A damaged one is
reported and the one before it is used; one of another run, or another version, is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as tensor_bytes

from sampa.lab.files import JSON_BYTES, parse_json, read_file, remove
from sampa.lab.training.claim import Owner
from sampa.lab.training.trees import flatten, unflatten

SCHEMA = 2
MANIFEST = "manifest.json"
NEWEST, BEST = "step-", "best-"  # to go on from, and to be reported

on_point: Callable[[str], None] | None = None
"""Called at each named instant of saving and pruning; tests crash there."""


class CheckpointError(OSError):
    """A checkpoint that cannot be written, or must not be read."""


class ForeignCheckpoint(CheckpointError):
    """A checkpoint of another run or another version: whole, perhaps, but not to be used here."""


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
) -> Path:
    """Write a checkpoint, whole or not at all; when this returns, it was read back.

    Args:
        folder: Of the run's checkpoints.
        kind: `NEWEST` or `BEST`.
        step: Batches seen so far.
        state: Anything made of tensors, numbers and text, by the name of the part.
        owner: The run.
        best: The step of the best model so far, which is kept as long as this checkpoint.

    Raises:
        CheckpointError: If the disk did not take it. Older checkpoints are as they were.
    """
    final = checkpoint_path(folder, kind, step)
    partial = folder / f".{final.name}.partial"
    owner.check()
    try:
        _make_folder(folder)
        remove(partial)
        partial.mkdir()
        files: dict[str, Recorded] = {}
        for part, tree in state.items():  # one by one: each is in memory twice
            _point(f"save: before {part}.safetensors")
            files |= _write_part(partial, part, tree)
        _point("save: before manifest")
        about = {"schema": SCHEMA, "step": step, "run_id": owner.id, "best": best}
        _write_manifest(partial, about | {"parts": sorted(state)}, files)
        _sync_folder(partial)
        _require_readable(partial)
        _point("save: before rename")
        owner.check()
        _remove(final)
        partial.rename(final)
        _point("save: after rename")
        _sync_folder(folder)
    except (OSError, SafetensorError) as error:
        remove(partial)
        raise CheckpointError(
            f"checkpoint {final} could not be written ({error}); earlier checkpoints are intact: "
            "free space or choose another --out"
        ) from error
    return final


def load(path: Path, owner: Owner = ANYONE) -> Checkpoint:
    """Read a checkpoint and check every byte of it.

    Raises:
        CheckpointError: Naming the file and what is wrong with it.
    """
    manifest = _read_manifest(path)
    if owner.id and manifest["run_id"] != owner.id:
        raise ForeignCheckpoint(
            f"checkpoint {path} is of the run {manifest['run_id']!r}, and run.json of "
            f"{owner.id!r}: remove it, or choose another --out"
        )
    try:
        contents = {file: _read_checked(path / file, manifest) for file in manifest["sha256"]}
        state = {part: _read_part(part, contents) for part in manifest["parts"]}
    except (KeyError, ValueError, TypeError, SafetensorError, MemoryError) as error:
        raise CheckpointError(f"checkpoint {path} does not hold together: {error!r}") from error
    return Checkpoint(path, manifest["step"], state)


def newest(
    folder: Path, kind: str, report: Callable[[str], None], owner: Owner = ANYONE
) -> Checkpoint | None:
    """The newest checkpoint that is whole; damaged ones are reported and passed over.

    Raises:
        ForeignCheckpoint: If the newest that is not damaged is of another run or version.
    """
    for path in sorted(_named(folder, kind), reverse=True):
        try:
            return load(path, owner)
        except ForeignCheckpoint:
            raise
        except CheckpointError as error:
            report(f"{error}; trying the one before it")
    return None


def passed_over(found: Checkpoint) -> set[Path]:
    """The damaged ones, newer than what `newest` found."""
    kind, folder = found.path.name.split("-")[0], found.path.parent
    return {path for path in _named(folder, f"{kind}-") if path > found.path}


def load_best(folder: Path, step: int, owner: Owner = ANYONE) -> dict[str, Any]:
    """The state of the best model, which was saved at that step.

    Raises:
        CheckpointError: If it is damaged: another model's score would be no answer.
    """
    try:
        return load(checkpoint_path(folder, BEST, step), owner).state
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
        named = {_read_manifest(path)["best"] for path in _named(folder, NEWEST)}
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


Recorded = tuple[str, int]
"""The hash and the size of a file."""


def _make_folder(folder: Path) -> None:
    if folder.is_symlink():
        raise OSError(f"{folder} must be a folder, not a symbolic link")
    folder.mkdir(exist_ok=True)


def _write_part(folder: Path, part: str, tree: Any) -> dict[str, Recorded]:
    """Write one part of the state; what is to be remembered of its files."""
    skeleton, tensors = flatten(tree)
    return {
        f"{part}.safetensors": _write(folder / f"{part}.safetensors", tensor_bytes(tensors)),
        f"{part}.json": _write(folder / f"{part}.json", json.dumps(skeleton).encode()),
    }


def _read_part(part: str, contents: dict[str, bytes]) -> Any:
    skeleton = parse_json(contents[f"{part}.json"])
    return unflatten(skeleton, read_tensors(contents[f"{part}.safetensors"]))


def _write_manifest(folder: Path, about: dict[str, Any], files: dict[str, Recorded]) -> None:
    hashes = {file: digest for file, (digest, _) in files.items()}
    sizes = {file: size for file, (_, size) in files.items()}
    manifest = about | {"sha256": hashes, "bytes": sizes}
    manifest |= {"digest": _digest(manifest)}
    _write(folder / MANIFEST, json.dumps(manifest, indent=2).encode())


def _require_readable(path: Path) -> None:
    """Read what was written, file by file: "saved" is said of nothing else."""
    manifest = _read_manifest(path)
    for file in manifest["sha256"]:
        content = _read_checked(path / file, manifest)
        if file.endswith(".json"):
            try:
                parse_json(content)
            except ValueError as error:
                raise CheckpointError(f"{file} could not be read again: {error}") from error


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = parse_json(read_file(path / MANIFEST, JSON_BYTES, links=False))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"checkpoint {path} has no readable {MANIFEST}: {error}") from error
    if not isinstance(manifest, dict):
        raise CheckpointError(f"checkpoint {path} has a {MANIFEST} that sampa did not write")
    schema, digest = manifest.get("schema"), manifest.pop("digest", None)
    is_newer = type(schema) is int and schema > SCHEMA  # its digest may be made in another way
    if not is_newer and digest != _digest(manifest):
        raise CheckpointError(f"checkpoint {path} has a damaged {MANIFEST}: its digest is wrong")
    if schema != SCHEMA:
        raise ForeignCheckpoint(
            f"checkpoint {path} must have schema {SCHEMA}, got {schema!r}; "
            "read it with the version of sampa that wrote it, or choose another --out"
        )
    if not _is_well_formed(manifest):
        raise CheckpointError(f"checkpoint {path} has a {MANIFEST} that sampa did not write")
    return manifest


def _is_well_formed(manifest: dict[str, Any]) -> bool:
    files, sizes, best = (manifest.get(name) for name in ("sha256", "bytes", "best"))
    return (
        isinstance(files, dict)
        and isinstance(sizes, dict)
        and files.keys() == sizes.keys()
        and all(type(size) is int for size in sizes.values())
        and all(Path(file).name == file for file in files)
        and isinstance(manifest.get("parts"), list)
        and type(manifest.get("step")) is int
        and isinstance(manifest.get("run_id"), str)
        and (best is None or type(best) is int)
    )


def _read_checked(file: Path, manifest: dict[str, Any]) -> bytes:
    """The contents of a file, if they are as recorded; no room is made for more than that."""
    size, digest = manifest["bytes"][file.name], manifest["sha256"][file.name]
    try:
        contents = read_file(file, size, links=False)
    except OSError as error:
        raise CheckpointError(f"checkpoint file {file} cannot be read: {error}") from error
    if len(contents) != size or _sha256(contents) != digest:
        raise CheckpointError(f"checkpoint file {file} is damaged: its hash is not the manifest's")
    return contents


def _digest(manifest: dict[str, Any]) -> str:
    """The manifest's own hash: nothing else would notice another step."""
    return _sha256(json.dumps(manifest, sort_keys=True).encode())


def _sha256(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()


def _write(file: Path, contents: bytes) -> Recorded:
    """Write a file to the disk and forget it, so that reading it back asks the disk."""
    with file.open("xb") as handle:
        handle.write(contents)
        handle.flush()
        os.fsync(handle.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return _sha256(contents), len(contents)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _point(name: str) -> None:
    if on_point is not None:
        on_point(name)
