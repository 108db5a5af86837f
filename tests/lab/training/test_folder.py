"""A run's folder belongs to one run and one process, and says so before any work is done."""

from __future__ import annotations

import json
import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sampa.lab.files import remove
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.run import BaseSpec, DataSpec
from tests.lab.oddities import KINDS, odd_file
from tests.lab.training.runs import carry_out, tiny_run
from tests.ranks import run_ranks


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """The folder of a run that was stopped after two batches."""
    out = tmp_path / "run"
    carry_out(tiny_run(), out, limit_steps=2)
    return out


def test_a_second_process_in_the_folder_is_refused(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path), RunFolder(tmp_path)
    first.open(tiny_run(), resume=False)
    with pytest.raises(OSError, match="another process is working in"):
        second.open(tiny_run(), resume=True)
    first.close()


def test_the_folder_is_free_again_after_a_run(begun: Path) -> None:
    folder = RunFolder(begun)
    assert folder.open(tiny_run(), resume=True) == []
    folder.close()


@pytest.mark.dist
def test_a_read_only_folder_is_refused_before_anything_else() -> None:
    with tempfile.TemporaryDirectory() as folder:  # where everyone may look, unlike tmp_path
        Path(folder).chmod(0o555)
        (refusal,) = run_ranks(1, refusal_of_an_unprivileged_run, Path(folder))
    assert "Permission denied" in refusal
    assert folder in refusal


def refusal_of_an_unprivileged_run(out: Path) -> str:
    with unprivileged(), pytest.raises(OSError) as refused:  # noqa: PT011 - the caller looks at it
        carry_out(tiny_run(data=DataSpec("no such data")), out)
    return str(refused.value)


@contextmanager
def unprivileged() -> Iterator[None]:
    """As another user for a while if this is the superuser, who may write anywhere.

    The other one may be unable to read this clone or the environment, so that all a run imports is
    imported before, and what the rank imports to send its answer afterwards.
    """
    if os.geteuid() != 0:
        yield
        return
    with tempfile.TemporaryDirectory() as elsewhere:
        carry_out(tiny_run(), Path(elsewhere), limit_steps=1)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_place_where_no_folder_can_be_is_refused_before_the_first_batch(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):  # data would be looked for later
        carry_out(tiny_run(data=DataSpec("no such data")), tmp_path / "file" / "run")


def test_a_begun_run_is_not_overwritten(begun: Path) -> None:
    with pytest.raises(ValueError, match="--out must be a new folder, or pass --resume"):
        carry_out(tiny_run(), begun)


@pytest.mark.parametrize("left", ["metrics.jsonl", "checkpoints", "result.json"])
def test_work_without_a_run_json_is_refused_and_left_as_it_is(left: str, tmp_path: Path) -> None:
    carry_out(tiny_run(), tmp_path)
    (tmp_path / "run.json").unlink()
    for name in {"metrics.jsonl", "checkpoints", "result.json"} - {left}:
        remove(tmp_path / name)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=r"no run.json that says whose they are: put it back, rem"):
        carry_out(tiny_run(rho=0.3), tmp_path, resume=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_metrics_without_checkpoints_are_not_written_over_unasked(tmp_path: Path) -> None:
    carry_out(tiny_run(), tmp_path)
    (tmp_path / "result.json").unlink()
    shutil.rmtree(tmp_path / "checkpoints")
    before = (tmp_path / "metrics.jsonl").read_bytes()
    for run, resume, reason in (
        (tiny_run(), False, "a new folder, or pass --resume to go on"),
        (tiny_run(rho=0.3), True, "rho must be as in"),
    ):
        with pytest.raises(ValueError, match=reason):
            carry_out(run, tmp_path, resume=resume)
        assert (tmp_path / "metrics.jsonl").read_bytes() == before
    carry_out(tiny_run(), tmp_path, resume=True)  # from the beginning, as it was asked to
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("given", [None, "", 3])
def test_a_run_json_without_the_id_of_its_run_is_refused(given: Any, begun: Path) -> None:
    saved = json.loads((begun / "run.json").read_text()) | {"id": given}
    (begun / "run.json").write_text(json.dumps(saved))
    with pytest.raises(
        ValueError, match=r"run.json must have the id of its run, got .*: go on with"
    ):
        carry_out(tiny_run(), begun, resume=True)


def test_a_run_json_of_another_run_is_refused(begun: Path, tmp_path: Path) -> None:
    carry_out(tiny_run(), tmp_path / "other", limit_steps=2)
    (tmp_path / "other" / "run.json").rename(begun / "run.json")
    with pytest.raises(OSError, match=r"step-000000002 is of the run '\w+', and run.json of"):
        carry_out(tiny_run(), begun, resume=True)


# ---- what is no file of ours -----------------------------------------------------------------


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "times.jsonl", ".run.json.partial"])
def test_a_link_in_the_folder_is_not_written_through(name: str, tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.write_text("mine")
    (out / name).symlink_to(elsewhere)
    with suppress(OSError):
        carry_out(tiny_run(epochs=1), out)
    assert elsewhere.read_text() == "mine"


def test_a_link_that_appears_later_is_not_written_through(begun: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    for name in ("metrics.jsonl", "times.jsonl"):
        (begun / name).unlink(missing_ok=True)
        (begun / name).symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"must be an ordinary file, not a symbolic link: .*metrics"):
        carry_out(tiny_run(), begun, resume=True)
    assert not elsewhere.exists()


@pytest.mark.parametrize("name", ["checkpoints", "tensorboard"])
def test_a_folder_of_a_run_that_is_a_link_is_refused(name: str, tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    elsewhere.mkdir()
    out.mkdir()
    (out / name).symlink_to(elsewhere)
    with pytest.raises(ValueError, match=f"{name} must be a folder and not a symbolic link"):
        carry_out(tiny_run(), out)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_ordinary_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for name in ("run.json", "metrics.jsonl"):
        odd_file(tmp_path / name, kind)
    for read in (folder.run, folder.metrics):
        with pytest.raises(
            OSError, match=r"it must (be an ordinary file, not a|have at most 64,000,0)"
        ):
            read()


def test_a_start_that_failed_does_not_block_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="data must be a known name"):
        carry_out(tiny_run(data=DataSpec("digitts")), tmp_path)
    assert carry_out(tiny_run(), tmp_path).limited is False


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "sam"}, r"method must be as in .*run.json: 'sampa', got 'sam'"),
        ({"rho": 0.3}, r"rho must be as in .*: None, got 0.3"),
        ({"seed": 1}, r"seed must be as in .*: 0, got 1"),
        ({"base": BaseSpec(lr=0.1)}, r"base.lr must be as in .*: 0.05, got 0.1"),
        ({"rhos": {"sampa": 0.1}}, r"rhos.sampa must be as in .*: 0.2, got 0.1"),
        ({"epochs": 3}, r"epochs must be as in .*: 2, got 3; resume with the same settings, "),
    ],
)
def test_changed_settings_are_refused_by_name(
    changes: dict[str, Any], message: str, begun: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        carry_out(tiny_run(**changes), begun, resume=True)


def test_another_description_is_not_another_run(begun: Path) -> None:
    assert carry_out(tiny_run(about="in other words"), begun, resume=True).limited is False


def test_changed_settings_are_taken_if_that_is_said(
    begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(rho=0.3, base=BaseSpec(lr=0.1))
    carry_out(run, begun, resume=True, allow_changes=True)
    assert "rho is now 0.3, the run began with None" in capsys.readouterr().out
    assert RunFolder(begun).run() == run  # what is reported is what was done


def test_a_finished_run_is_not_given_other_settings(tmp_path: Path) -> None:
    carry_out(tiny_run(), tmp_path)
    with pytest.raises(ValueError, match=r"rho must be as in .* that run is done; choose another"):
        carry_out(tiny_run(rho=0.3), tmp_path, resume=True, allow_changes=True)


def begun_elsewhere(begun: Path, name: str, value: str = "other") -> None:
    """Change a condition under which the run began."""
    saved = json.loads((begun / "run.json").read_text())
    *outer, inner = name.split(".")
    place = saved["conditions"]
    for key in outer:
        place = place[key]
    place[inner] = value
    (begun / "run.json").write_text(json.dumps(saved))


CONDITIONS = ["threads", "versions.torch", "machine.processor", "machine.device"]


@pytest.mark.parametrize("name", CONDITIONS)
def test_other_conditions_on_resume_are_warned_of(
    name: str, begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun_elsewhere(begun, name)
    carry_out(tiny_run(), begun, resume=True, limit_steps=2)
    assert f"warning: {name} is" in capsys.readouterr().out


@pytest.mark.parametrize("name", CONDITIONS)
def test_other_conditions_on_resume_are_an_error_where_strict(name: str, begun: Path) -> None:
    begun_elsewhere(begun, name)
    before = sorted(begun.rglob("*"))
    with pytest.raises(ValueError, match=f"{name} is .* the run began with 'other'.*--strict"):
        carry_out(tiny_run(), begun, resume=True, strict=True)
    assert sorted(begun.rglob("*")) == before


def test_the_same_conditions_are_fine_where_strict(begun: Path) -> None:
    assert carry_out(tiny_run(), begun, resume=True, strict=True).limited is False


def conditions_in(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run.json").read_text())["conditions"]


def test_all_conditions_of_a_run_that_went_on_elsewhere_are_kept(begun: Path) -> None:
    own = conditions_in(begun)
    begun_elsewhere(begun, "commit")
    for _ in range(2):
        carry_out(tiny_run(), begun, resume=True, limit_steps=2)
    assert conditions_in(begun) == {**own, "commit": ["other", own["commit"]]}
    carry_out(tiny_run(rho=0.3), begun, resume=True, allow_changes=True)
    assert conditions_in(begun)["commit"] == ["other", own["commit"]]


def test_a_record_with_a_run_that_was_begun_with_changed_source_is_refused(begun: Path) -> None:
    begun_elsewhere(begun, "commit", "abc-dirty")
    carry_out(tiny_run(), begun, resume=True)
    with pytest.raises(ValueError, match="source that is committed, got abc-dirty"):
        RunFolder(begun).conditions().require_committed("a run", allow_dirty=False)


def test_a_refused_resume_notes_nothing(begun: Path) -> None:
    begun_elsewhere(begun, "threads")
    before = (begun / "run.json").read_bytes()
    with pytest.raises(ValueError, match="--strict"):
        carry_out(tiny_run(), begun, resume=True, strict=True)
    assert (begun / "run.json").read_bytes() == before


def test_a_damaged_run_json_is_named(begun: Path) -> None:
    (begun / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run\.json must be JSON, as sampa wrote it"):
        carry_out(tiny_run(), begun, resume=True)


def test_the_conditions_of_a_run_are_recorded(begun: Path) -> None:
    conditions = json.loads((begun / "run.json").read_text())["conditions"]
    known = {"commit", "numerics", "versions", "machine", "threads", "processes"}
    assert set(conditions) == known
    assert {"python", "torch", "sampa", "numpy"} <= set(conditions["versions"])


def test_metrics_are_cut_to_what_a_checkpoint_knows(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append({"epoch": 0})
    size = folder.metrics_size()
    folder.append({"epoch": 1})
    folder.cut_metrics(size)
    assert folder.metrics() == [{"epoch": 0}]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A disk that takes no more: the system refuses the write in the middle, as a full one does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_line_that_the_disk_does_not_take_is_written_with_the_next(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append({"epoch": 0})
    whole = (tmp_path / "metrics.jsonl").read_bytes()
    with files_of_at_most(len(whole) + 3):
        with pytest.raises(OSError, match="File too large"):
            folder.append({"epoch": 1})
        assert (tmp_path / "metrics.jsonl").read_bytes() == whole
        with pytest.raises(OSError, match="File too large"):
            folder.metrics_size()  # no checkpoint forgets it
    folder.append({"epoch": 2})
    assert folder.metrics() == [{"epoch": 0}, {"epoch": 1}, {"epoch": 2}]


def test_a_file_that_the_disk_does_not_take_leaves_the_old_one(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write("result.json", {"a": 1})
    with (
        files_of_at_most(5),
        pytest.raises(OSError, match=r"result\.json could not be written.*make room and resume"),
    ):
        folder.write("result.json", {"a": 2})
    assert folder.read("result.json") == {"a": 1}
    assert os.listdir(tmp_path) == ["result.json"]


@pytest.mark.parametrize("text", ["[" * 100_000, "[1]", '"x"', "\xff"])
def test_a_json_file_that_is_no_object_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"run\.json must be"):
        RunFolder(tmp_path).read("run.json")


def test_a_folder_without_metrics_has_none(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.cut_metrics(0)
    assert folder.metrics_size() == 0
    assert folder.metrics() == []
