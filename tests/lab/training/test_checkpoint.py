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
from sampa.lab.training.checkpoint import BEST, NEWEST
from sampa.lab.training.claim import Owner
from sampa.lab.training.manifest import (
    MANIFEST,
    CheckpointError,
    ForeignCheckpoint,
    digest_of,
    sha256,
)
from tests.lab.oddities import KINDS, odd_file

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
    manifest["digest"] = digest_of(manifest)
    (path / MANIFEST).write_text(json.dumps(manifest))


def forge(file: Path, content: bytes) -> None:
    """Other contents, with a manifest that agrees."""
    manifest = json.loads((file.parent / MANIFEST).read_text())
    file.write_bytes(content)
    hashes = manifest["sha256"] | {file.name: sha256(content)}
    sizes = manifest["bytes"] | {file.name: len(content)}
    rewrite_manifest(file.parent, sha256=hashes, bytes=sizes)


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
    rewrite_manifest(newer, schema=3)
    assert "must have schema 2, got 3; read it with the version of sampa that wrote it" in refusal(
        newer
    )


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "sub/x"])
def test_a_manifest_that_names_a_file_elsewhere_is_refused(name: str, newer: Path) -> None:
    rewrite_manifest(newer, sha256={name: "0" * 64}, bytes={name: 1})
    assert "manifest.json that sampa did not write" in refusal(newer)


@pytest.mark.parametrize("text", ["[]", "null", "{", '"schema"', "\udcff"])
def test_a_manifest_that_is_no_manifest_is_refused(text: str, newer: Path) -> None:
    (newer / MANIFEST).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert "checkpoint" in refusal(newer)


def test_a_part_that_does_not_hold_together_is_refused(newer: Path) -> None:
    forge(newer / "loop.json", b'{"$tensor": "absent"}')
    assert "does not hold together" in refusal(newer)


def test_a_pickle_in_place_of_tensors_is_refused_and_not_run(newer: Path, tmp_path: Path) -> None:
    trace = tmp_path / "executed"

    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (trace,)

    forge(newer / "model.safetensors", pickle.dumps(Payload()))
    assert "does not hold together" in refusal(newer)
    assert not trace.exists()


def test_a_checkpoint_of_another_run_is_refused_and_none_before_it_used(tmp_path: Path) -> None:
    own = Owner("a" * 32)
    checkpoint.save(tmp_path, NEWEST, 10, STATE, owner=own)
    checkpoint.save(tmp_path, NEWEST, 20, STATE, owner=Owner("b" * 32))
    with pytest.raises(ForeignCheckpoint, match=r"20 is of the run 'b+', and run.json of 'a+': re"):
        checkpoint.newest(tmp_path, NEWEST, pytest.fail, own)


def test_a_newer_schema_is_refused_and_none_before_it_used(folder: Path, newer: Path) -> None:
    (newer / MANIFEST).write_text('{"schema": 3, "other": "things"}')
    with pytest.raises(ForeignCheckpoint, match="must have schema 2, got 3"):
        checkpoint.newest(folder, NEWEST, pytest.fail)


@pytest.mark.parametrize("name", ["model.safetensors", "loop.json", MANIFEST])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_of_that_size_is_refused_at_once(
    name: str, kind: str, folder: Path, newer: Path
) -> None:
    odd_file(newer / name, kind)
    reports: list[str] = []
    found = checkpoint.newest(folder, NEWEST, reports.append)
    assert found is not None
    assert found.step == 10
    (report,) = reports
    assert name in report
    assert ("it must have at most" if kind == "terabyte" else "it must be an ordinary") in report


def test_a_terabyte_that_the_manifest_promises_is_refused(newer: Path) -> None:
    odd_file(newer / "model.safetensors", "terabyte")
    sizes = json.loads((newer / MANIFEST).read_text())["bytes"]
    rewrite_manifest(newer, bytes=sizes | {"model.safetensors": 10**12})
    assert "does not hold together: MemoryError" in refusal(newer)


def test_json_that_is_nested_too_deeply_is_refused(newer: Path) -> None:
    forge(newer / "loop.json", b"[" * 500 + b"]" * 500)
    assert "nested deeper than 100 levels" in refusal(newer)


# ---- saving ----------------------------------------------------------------------------------


def test_a_checkpoint_is_replaced_by_one_of_the_same_name(folder: Path, newer: Path) -> None:
    checkpoint.save(folder, NEWEST, 20, {"loop": {"position": 21}})
    assert checkpoint.load(newer).state == {"loop": {"position": 21}}
    assert sorted(path.name for path in folder.iterdir()) == ["step-000000010", "step-000000020"]


def test_what_cannot_be_read_back_is_not_called_saved(folder: Path) -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    with pytest.raises(
        CheckpointError, match=r"30 could not be written \(loop.json could not be r"
    ):
        checkpoint.save(folder, NEWEST, 30, {"loop": deep})
    assert names(folder) == ["step-10", "step-20"]


def test_a_disk_that_forgets_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_a_bit(point: str) -> None:
        if point == "save: before manifest":
            file = folder / ".step-000000030.partial" / "model.safetensors"
            content = bytearray(file.read_bytes())
            content[-1] ^= 1
            file.write_bytes(content)

    monkeypatch.setattr(checkpoint, "on_point", lose_a_bit)
    with pytest.raises(CheckpointError, match=r"model.safetensors is damaged"):
        checkpoint.save(folder, NEWEST, 30, STATE)
    assert names(folder) == ["step-10", "step-20"]


def test_links_in_the_folder_are_replaced_and_not_written_through(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "checkpoints"
    elsewhere.mkdir()
    folder.mkdir()
    for name in ("step-000000010", ".step-000000010.partial", ".step-000000010.doomed"):
        (folder / name).symlink_to(elsewhere)
    checkpoint.save(folder, NEWEST, 10, STATE)
    assert list(elsewhere.iterdir()) == []
    assert names(folder) == ["step-10"]


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "checkpoints").symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match="must be a folder, not a symbolic link"):
        checkpoint.save(tmp_path / "checkpoints", NEWEST, 10, STATE)
    assert list(elsewhere.iterdir()) == []


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
    checkpoint.prune(folder, 30, keep)
    kept = sorted(path.name for path in folder.iterdir())
    assert kept == ["step-000000010", "step-000000020", "step-000000030"][-keep:]


def test_the_best_model_stays_while_a_checkpoint_names_it(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        checkpoint.save(tmp_path, BEST, step, STATE)
    for step, best in ((10, 5), (20, 10)):
        checkpoint.save(tmp_path, NEWEST, step, STATE, best=best)
    checkpoint.prune(tmp_path, 20, 2)  # 15 is of a session that was killed before it saved
    assert names(tmp_path) == ["best-5", "best-10", "step-10", "step-20"]
    checkpoint.prune(tmp_path, 20, 1)
    assert names(tmp_path) == ["best-10", "step-20"]


def test_no_best_model_goes_while_a_checkpoint_cannot_say_which_it_names(folder: Path) -> None:
    checkpoint.save(folder, BEST, 5, STATE)
    (folder / "step-000000010" / MANIFEST).write_text("{")
    checkpoint.prune(folder, 20, 2)
    assert names(folder) == ["best-5", "step-10", "step-20"]


def test_a_good_checkpoint_does_not_go_in_favor_of_later_ones_that_are_damaged(
    folder: Path, newer: Path
) -> None:
    checkpoint.save(folder, NEWEST, 12, STATE)  # after the run went back from 20 to 10
    checkpoint.prune(folder, 12, 1, damaged={newer})
    assert names(folder) == ["step-12", "step-20"]
    checkpoint.save(folder, NEWEST, 22, STATE)
    checkpoint.prune(folder, 22, 2, damaged={newer})
    assert names(folder) == ["step-12", "step-22"]


def names(folder: Path) -> list[str]:
    found = (path.name.split("-") for path in folder.iterdir())
    return [f"{kind}-{step}" for kind, step in sorted((kind, int(step)) for kind, step in found)]


def test_pruning_removes_what_a_crash_left(folder: Path) -> None:
    (folder / ".step-000000030.partial").mkdir()
    (folder / ".step-000000005.doomed").mkdir()
    checkpoint.prune(folder, 20, 2)
    assert sorted(path.name for path in folder.iterdir()) == ["step-000000010", "step-000000020"]


def test_a_link_is_no_checkpoint(folder: Path, tmp_path: Path) -> None:
    (folder / "step-000000099").symlink_to(folder / "step-000000010")
    found = checkpoint.newest(folder, NEWEST, report=pytest.fail)
    assert found is not None
    assert found.step == 20
