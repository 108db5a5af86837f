"""A cache entry is whole or absent; a damaged one is rebuilt."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sampa.lab.data import cache
from sampa.lab.data.cache import Built, CacheEntry, file_hash

ARRAYS = {"x": np.arange(100, dtype=np.uint8), "y": np.arange(10)}
FACTS = {"names": ["a", "b"], "mean": 1 / 3}


class Builder:
    """Builds, and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Built:
        self.calls += 1
        return dict(ARRAYS), dict(FACTS)


@pytest.fixture
def builder() -> Builder:
    return Builder()


@pytest.fixture
def entry(tmp_path: Path, builder: Builder) -> CacheEntry:
    return CacheEntry(tmp_path / "cache", "set-0", builder)


def test_arrays_come_back_as_they_were_built(entry: CacheEntry) -> None:
    arrays = entry.arrays()
    assert all(np.array_equal(arrays[name], ARRAYS[name]) for name in ARRAYS)


def test_facts_come_back_as_they_were_built(entry: CacheEntry) -> None:
    entry.arrays()
    assert entry.facts() == FACTS


def test_an_entry_is_built_once(entry: CacheEntry, builder: Builder) -> None:
    for _ in range(3):
        entry.arrays()
        entry.facts()
    assert builder.calls == 1


def test_arrays_are_mapped_from_disk(entry: CacheEntry) -> None:
    mapped = entry.arrays()["x"]
    assert isinstance(mapped.base, np.memmap)


def test_arrays_cannot_be_changed(entry: CacheEntry) -> None:
    with pytest.raises(ValueError, match="read-only"):
        entry.arrays()["x"][0] = 1


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("name", ["set-0.x.npy", "set-0.y.npy", "set-0.json"])
@pytest.mark.parametrize("damage", [flip_a_bit, cut, Path.unlink])
def test_a_damaged_entry_is_rebuilt(
    name: str, damage: Callable[[Path], None], entry: CacheEntry, builder: Builder
) -> None:
    entry.arrays()
    damage(entry.folder / name)
    arrays = entry.arrays()
    assert builder.calls == 2
    assert all(np.array_equal(arrays[key], ARRAYS[key]) for key in ARRAYS)


def test_altered_facts_are_rebuilt(entry: CacheEntry) -> None:
    entry.facts()
    path = entry.folder / "set-0.json"
    path.write_text(path.read_text().replace('"a"', '"z"'))
    assert entry.facts() == FACTS


@pytest.mark.parametrize("content", ["[]", "null", "{}", '{"sha256": 1}', "\x00"])
def test_json_of_another_shape_is_rebuilt(content: str, entry: CacheEntry) -> None:
    entry.folder.mkdir()
    (entry.folder / "set-0.json").write_text(content)
    assert entry.facts() == FACTS


def test_an_entry_of_another_schema_is_rebuilt(
    entry: CacheEntry, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry.arrays()
    monkeypatch.setattr(cache, "CACHE_SCHEMA", cache.CACHE_SCHEMA + 1)
    entry.arrays()
    assert builder.calls == 2


def test_no_temporary_file_stays(entry: CacheEntry) -> None:
    entry.arrays()
    assert sorted(os.listdir(entry.folder)) == ["set-0.json", "set-0.x.npy", "set-0.y.npy"]


def test_a_build_that_is_interrupted_leaves_no_entry(
    entry: CacheEntry, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(source: object, target: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            entry.arrays()
    assert os.listdir(entry.folder) == []
    assert np.array_equal(entry.arrays()["x"], ARRAYS["x"])


def test_a_full_disk_is_said_with_the_folder(
    entry: CacheEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(stream: object, array: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(
        OSError, match=r"cannot keep decoded data in .*No space left.*XDG_CACHE_HOME"
    ):
        entry.arrays()


def test_what_is_mapped_stays_readable_while_the_entry_is_rebuilt(entry: CacheEntry) -> None:
    mapped = entry.arrays()["x"]
    (entry.folder / "set-0.json").unlink()
    entry.arrays()
    assert np.array_equal(mapped, ARRAYS["x"])


def test_the_json_can_be_read_by_people(entry: CacheEntry) -> None:
    entry.facts()
    manifest = json.loads((entry.folder / "set-0.json").read_text())
    assert manifest["facts"] == FACTS


def test_a_hash_covers_names_and_contents(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"1")
    b.write_bytes(b"1")
    hashes = {file_hash([a]), file_hash([b]), file_hash([a, b]), file_hash([b, a])}
    a.write_bytes(b"2")
    assert len(hashes | {file_hash([a])}) == 5
