"""Checkpoints are whole or not there, and a damaged one is noticed whatever the damage."""

from __future__ import annotations

import json
import pickle
import resource
from pathlib import Path
from typing import Any

import pytest
import torch

from sampa.lab.training import checkpoint
from sampa.lab.training.checkpoint import BEST, MANIFEST, NEWEST, CheckpointError

STATE: dict[str, Any] = {
    "model": {"weight": torch.arange(6.0).view(2, 3), "steps": torch.tensor(7)},
    "loop": {"position": 20, "best": float("-inf")},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two checkpoints, at steps 10 and 20."""
    for step in (10, 20):
        checkpoint.save(tmp_path, NEWEST, step, STATE)
    return tmp_path


@pytest.fixture
def newer(folder: Path) -> Path:
    return folder / "step-000000020"


def rewrite_manifest(path: Path, **changes: Any) -> None:
    """A manifest with other contents and the right digest, as someone who knows sampa makes it."""
    manifest = json.loads((path / MANIFEST).read_text()) | changes
    del manifest["digest"]
    manifest["digest"] = checkpoint._digest(manifest)
    (path / MANIFEST).write_text(json.dumps(manifest))


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as refused:
        checkpoint.load(path)
    return str(refused.value)


def test_what_was_saved_is_loaded(newer: Path) -> None:
    loaded = checkpoint.load(newer)
    assert loaded.step == 20
    assert loaded.state["loop"] == STATE["loop"]
    assert torch.equal(loaded.state["model"]["weight"], STATE["model"]["weight"])


def test_only_safetensors_and_json_are_written(newer: Path) -> None:
    assert {file.suffix for file in newer.iterdir()} == {".safetensors", ".json"}


def test_the_newest_is_found(folder: Path) -> None:
    found = checkpoint.newest(folder, NEWEST, report=pytest.fail)
    assert found is not None
    assert found.step == 20


def test_nothing_is_found_where_nothing_was_saved(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path / "none", NEWEST, report=pytest.fail) is None


# ---- damage ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", MANIFEST])
def test_every_flipped_bit_of_every_file_is_noticed(name: str, tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, NEWEST, 20, {"model": STATE["model"]})
    file = path / name
    original = file.read_bytes()
    unnoticed: list[int] = []
    for bit in range(8 * len(original)):
        damaged = bytearray(original)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        try:
            checkpoint.load(path)
            unnoticed.append(bit)
        except CheckpointError:
            pass
    assert unnoticed == []


@pytest.mark.parametrize("name", ["model.safetensors", "loop.json", MANIFEST])
def test_a_truncated_file_is_reported_and_the_checkpoint_before_it_used(
    name: str, folder: Path, newer: Path
) -> None:
    file = newer / name
    file.write_bytes(file.read_bytes()[:-1])
    reports: list[str] = []
    found = checkpoint.newest(folder, NEWEST, reports.append)
    assert found is not None
    assert found.step == 10
    assert len(reports) == 1
    assert str(newer) in reports[0]
    assert "trying the one before it" in reports[0]


@pytest.mark.parametrize("name", ["model.safetensors", MANIFEST])
def test_a_missing_file_is_named(name: str, newer: Path) -> None:
    (newer / name).unlink()
    assert name in refusal(newer)


def test_a_newer_schema_is_refused_with_what_to_do(newer: Path) -> None:
    rewrite_manifest(newer, schema=2)
    assert "must have schema 1, got 2; read it with the version of sampa that wrote it" in refusal(
        newer
    )


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "sub/x"])
def test_a_manifest_that_names_a_file_elsewhere_is_refused(name: str, newer: Path) -> None:
    rewrite_manifest(newer, sha256={name: "0" * 64})
    assert "manifest.json that sampa did not write" in refusal(newer)


@pytest.mark.parametrize("text", ["[]", "null", "{", '"schema"', "\udcff"])
def test_a_manifest_that_is_no_manifest_is_refused(text: str, newer: Path) -> None:
    (newer / MANIFEST).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert "checkpoint" in refusal(newer)


def test_a_part_that_does_not_hold_together_is_refused(newer: Path) -> None:
    skeleton = b'{"$tensor": "absent"}'
    (newer / "loop.json").write_bytes(skeleton)
    hashes = json.loads((newer / MANIFEST).read_text())["sha256"]
    rewrite_manifest(newer, sha256=hashes | {"loop.json": checkpoint._sha256(skeleton)})
    assert "does not hold together" in refusal(newer)


def test_a_pickle_in_place_of_tensors_is_refused_and_not_run(newer: Path, tmp_path: Path) -> None:
    trace = tmp_path / "executed"

    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (trace,)

    content = pickle.dumps(Payload())
    (newer / "model.safetensors").write_bytes(content)
    hashes = json.loads((newer / MANIFEST).read_text())["sha256"]
    rewrite_manifest(newer, sha256=hashes | {"model.safetensors": checkpoint._sha256(content)})
    assert "does not hold together" in refusal(newer)
    assert not trace.exists()


# ---- saving ----------------------------------------------------------------------------------


def test_a_checkpoint_is_replaced_by_one_of_the_same_name(folder: Path, newer: Path) -> None:
    checkpoint.save(folder, NEWEST, 20, {"loop": {"position": 21}})
    assert checkpoint.load(newer).state == {"loop": {"position": 21}}
    assert sorted(path.name for path in folder.iterdir()) == ["step-000000010", "step-000000020"]


def test_a_full_disk_is_an_error_that_leaves_the_old_checkpoints(folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))  # larger files cannot be written
    try:
        with pytest.raises(CheckpointError, match=r"File too large.*earlier checkpoints are int"):
            checkpoint.save(folder, NEWEST, 30, {"model": torch.zeros(1000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(path.name for path in folder.iterdir()) == ["step-000000010", "step-000000020"]
    assert checkpoint.load(folder / "step-000000020").step == 20


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_pruning_keeps_the_newest(keep: int, folder: Path) -> None:
    checkpoint.save(folder, NEWEST, 30, STATE)
    checkpoint.prune(folder, NEWEST, keep)
    kept = sorted(path.name for path in folder.iterdir())
    assert kept == ["step-000000010", "step-000000020", "step-000000030"][-keep:]


def test_pruning_leaves_checkpoints_of_another_kind(folder: Path) -> None:
    checkpoint.save(folder, BEST, 5, STATE)
    checkpoint.prune(folder, NEWEST, 1)
    assert sorted(path.name for path in folder.iterdir()) == ["best-000000005", "step-000000020"]


def test_pruning_removes_what_a_crash_left(folder: Path) -> None:
    (folder / ".step-000000030.partial").mkdir()
    (folder / ".step-000000005.doomed").mkdir()
    checkpoint.prune(folder, NEWEST, 2)
    assert sorted(path.name for path in folder.iterdir()) == ["step-000000010", "step-000000020"]


def test_a_link_is_no_checkpoint(folder: Path, tmp_path: Path) -> None:
    (folder / "step-000000099").symlink_to(folder / "step-000000010")
    found = checkpoint.newest(folder, NEWEST, report=pytest.fail)
    assert found is not None
    assert found.step == 20
