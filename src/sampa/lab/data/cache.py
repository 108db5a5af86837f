"""Decoded arrays on disk: written whole or not at all, checked when read, rebuilt when damaged.

An entry is one .npy file per array and a JSON file written last. The JSON holds the SHA-256 of
every array file, and of itself. The entry's name must contain a hash of what it was made from, so
that an altered source never meets an old entry; then two processes that build at once write the
same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from sampa.lab.files import LARGEST_FILE, open_file, read_json

CACHE_SCHEMA = 1

BuiltFacts = dict[str, Any]
Built = tuple[dict[str, np.ndarray], BuiltFacts]


def file_hash(paths: Iterable[Path]) -> str:
    """SHA-256 of the files' names and contents."""
    total = hashlib.sha256()
    for path in paths:
        with open_file(path, LARGEST_FILE) as stream:
            total.update(f"{path.name}\0".encode())
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()


@dataclass(frozen=True)
class CacheEntry:
    """Arrays and facts about them, kept under a name in a folder.

    Attributes:
        folder: Where; made when needed.
        name: Must contain a hash of the source.
        build: Makes the arrays and the facts (anything JSON holds) from the source.
    """

    folder: Path
    name: str
    build: Callable[[], Built]

    def facts(self) -> BuiltFacts:
        """The facts, without looking at the arrays."""
        manifest = self._manifest() or self._write()
        return manifest["facts"]

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays, mapped from disk and read-only; rebuilt if a bit of them has changed."""
        manifest = self._manifest()
        if manifest is None or not self._is_intact(manifest):
            manifest = self._write()
        return {
            name: np.load(self._file(name), mmap_mode="r", allow_pickle=False).view(np.ndarray)
            for name in manifest["arrays"]
        }

    def _file(self, array: str) -> Path:
        return self.folder / f"{self.name}.{array}.npy"

    @property
    def _json(self) -> Path:
        return self.folder / f"{self.name}.json"

    def _manifest(self) -> BuiltFacts | None:
        try:
            manifest = read_json(self._json)
            digest = manifest.pop("sha256")
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            return None  # missing, or not what was written
        known = manifest.get("schema") == CACHE_SCHEMA and digest == _digest(manifest)
        return manifest if known else None

    def _is_intact(self, manifest: BuiltFacts) -> bool:
        try:
            return all(
                file_hash([self._file(name)]) == digest
                for name, digest in manifest["arrays"].items()
            )
        except OSError:
            return False

    def _write(self) -> BuiltFacts:
        arrays, facts = self.build()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for name, array in arrays.items():
                _replace(self._file(name), lambda stream, a=array: np.save(stream, a))
            hashes = {name: file_hash([self._file(name)]) for name in arrays}
            manifest: BuiltFacts = {"schema": CACHE_SCHEMA, "arrays": hashes, "facts": facts}
            manifest = json.loads(json.dumps(manifest))  # as the next reader will see it
            text = json.dumps({**manifest, "sha256": _digest(manifest)}, indent=1)
            _replace(self._json, lambda stream: stream.write(text.encode()))
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot keep decoded data in {self.folder} ({error.strerror}); choose another "
                "folder with cache_dir or the environment's XDG_CACHE_HOME",
            ) from error
        return manifest


def _digest(manifest: BuiltFacts) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _replace(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write under a temporary name, then rename: no reader ever sees half a file."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
