"""The files of a checkpoint and their manifest: sizes, hashes, and a hash of its own."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from sampa.lab.files import JSON_BYTES, parse_json, read_file

SCHEMA = 2
MANIFEST = "manifest.json"

Recorded = tuple[str, int]
"""The hash and the size of a file."""


class CheckpointError(OSError):
    """A checkpoint that cannot be written, or must not be read."""


class ForeignCheckpoint(CheckpointError):
    """A checkpoint of another run or another version: whole, perhaps, but not to be used here."""


def write_manifest(folder: Path, about: dict[str, Any], files: dict[str, Recorded]) -> None:
    """Write what is to be known of a checkpoint, and of its files."""
    hashes = {file: digest for file, (digest, _) in files.items()}
    sizes = {file: size for file, (_, size) in files.items()}
    manifest = about | {"sha256": hashes, "bytes": sizes}
    manifest |= {"digest": digest_of(manifest)}
    write_file(folder / MANIFEST, json.dumps(manifest, indent=2).encode())


def require_readable(path: Path) -> None:
    """Read what was written, file by file: only then does it count as saved."""
    manifest = read_manifest(path)
    for file in manifest["sha256"]:
        content = read_checked(path / file, manifest)
        if file.endswith(".json"):
            try:
                parse_json(content)
            except ValueError as error:
                raise CheckpointError(f"{file} could not be read again: {error}") from error


def read_manifest(path: Path) -> dict[str, Any]:
    """What is known of a checkpoint.

    Raises:
        CheckpointError: If it is damaged.
        ForeignCheckpoint: If it is of another version.
    """
    try:
        manifest = parse_json(read_file(path / MANIFEST, JSON_BYTES, links=False))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"checkpoint {path} has no readable {MANIFEST}: {error}") from error
    if not isinstance(manifest, dict):
        raise CheckpointError(f"checkpoint {path} has a {MANIFEST} that sampa did not write")
    schema, digest = manifest.get("schema"), manifest.pop("digest", None)
    is_newer = type(schema) is int and schema > SCHEMA  # its digest may be made in another way
    if not is_newer and digest != digest_of(manifest):
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


def read_checked(file: Path, manifest: dict[str, Any]) -> bytes:
    """The contents of a file, if they are as recorded; no room is made for more than that."""
    size, digest = manifest["bytes"][file.name], manifest["sha256"][file.name]
    try:
        contents = read_file(file, size, links=False)
    except OSError as error:
        raise CheckpointError(f"checkpoint file {file} cannot be read: {error}") from error
    if len(contents) != size or sha256(contents) != digest:
        raise CheckpointError(f"checkpoint file {file} is damaged: its hash is not the manifest's")
    return contents


def digest_of(manifest: dict[str, Any]) -> str:
    """The manifest's own hash: nothing else would notice another step."""
    return sha256(json.dumps(manifest, sort_keys=True).encode())


def sha256(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()


def write_file(file: Path, contents: bytes) -> Recorded:
    """Write a file to the disk and forget it, so that reading it back asks the disk."""
    with file.open("xb") as handle:
        handle.write(contents)
        handle.flush()
        os.fsync(handle.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return sha256(contents), len(contents)


def sync_folder(folder: Path) -> None:
    """Have the disk keep the names in a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
