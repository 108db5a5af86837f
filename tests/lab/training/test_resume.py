"""A run that stops and goes on is the run that never stopped."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import sampa
from sampa.lab.training import checkpoint
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.loop import Trainer
from sampa.lab.training.manifest import CheckpointError, read_manifest
from sampa.lab.training.run import DataSpec, ModelSpec, Run
from tests.lab.training.runs import BATCHES, TOTAL, Outcome, carry_out, outcome, tiny_run
from tests.marks import rest_is_slow


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the batches that runs ask for."""
    positions: list[int] = []
    original = Trainer.batch

    def batch(self: Trainer, position: int) -> Any:
        positions.append(position)
        return original(self, position)

    monkeypatch.setattr(Trainer, "batch", batch)
    return positions


@pytest.mark.parametrize("position", range(1, TOTAL + 1))
def test_a_run_stopped_after_any_batch_goes_on_bit_for_bit(
    position: int, tmp_path: Path, uninterrupted: Outcome
) -> None:
    carry_out(tiny_run(), tmp_path, limit_steps=position)
    carry_out(tiny_run(), tmp_path, resume=True)
    assert outcome(tmp_path) == uninterrupted


def test_a_resumed_run_does_not_repeat_what_was_saved(tmp_path: Path, seen: list[int]) -> None:
    carry_out(tiny_run(), tmp_path, limit_steps=4)
    del seen[:]
    carry_out(tiny_run(), tmp_path, resume=True)
    assert seen == [3, 4, 5]  # the held batch is drawn again, and then what is left


def test_a_finished_run_is_not_repeated(tmp_path: Path, seen: list[int]) -> None:
    result = carry_out(tiny_run(), tmp_path)
    del seen[:]
    assert carry_out(tiny_run(), tmp_path, resume=True) == result
    assert seen == []


@pytest.mark.parametrize("method", rest_is_slow(sampa.METHODS, "sam", "sampa", "mesa"))
def test_every_method_goes_on_bit_for_bit(method: str, tmp_path: Path) -> None:
    run = tiny_run(method=method)
    carry_out(run, tmp_path / "whole")
    carry_out(run, tmp_path / "halves", limit_steps=BATCHES + 1)
    carry_out(run, tmp_path / "halves", resume=True)
    assert outcome(tmp_path / "halves") == outcome(tmp_path / "whole")


def test_half_precision_goes_on_with_its_loss_scale(tmp_path: Path) -> None:
    run = tiny_run(amp="fp16")
    carry_out(run, tmp_path / "whole")
    carry_out(run, tmp_path / "halves", limit_steps=4)
    carry_out(run, tmp_path / "halves", resume=True)
    assert outcome(tmp_path / "halves") == outcome(tmp_path / "whole")


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.json", "loop.json"])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(
    name: str, tmp_path: Path, uninterrupted: Outcome, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out(tiny_run(), tmp_path, limit_steps=4, save_every=2)
    damage(tmp_path / "checkpoints" / "step-000000004" / name)
    carry_out(tiny_run(), tmp_path, resume=True)
    assert outcome(tmp_path) == uninterrupted
    assert f"{name} is damaged" in capsys.readouterr().out


def test_a_run_whose_checkpoints_are_all_damaged_does_not_begin_again_unasked(
    tmp_path: Path, uninterrupted: Outcome
) -> None:
    carry_out(tiny_run(), tmp_path, limit_steps=4, save_every=2)
    for path in (tmp_path / "checkpoints").glob("step-*"):
        damage(path / "manifest.json")
    before = contents(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"no checkpoint in .* can be read.* or remove .*/che"
    ):
        carry_out(tiny_run(), tmp_path, resume=True)
    assert contents(tmp_path) == before
    shutil.rmtree(tmp_path / "checkpoints")  # as the message says
    carry_out(tiny_run(), tmp_path, resume=True)
    assert outcome(tmp_path) == uninterrupted


def test_a_run_of_a_newer_version_is_left_as_it_is(tmp_path: Path) -> None:
    carry_out(tiny_run(), tmp_path, limit_steps=4, save_every=2)
    newest = tmp_path / "checkpoints" / "step-000000004" / "manifest.json"
    newest.write_text(newest.read_text().replace('"schema": 2', '"schema": 3'))
    before = contents(tmp_path)
    with pytest.raises(CheckpointError, match="must have schema 2, got 3; read it with the versio"):
        carry_out(tiny_run(), tmp_path, resume=True, keep=1)
    assert contents(tmp_path) == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_new_checkpoints_do_not_go_in_favor_of_damaged_ones(tmp_path: Path) -> None:
    carry_out(tiny_run(), tmp_path, limit_steps=5, save_every=1)
    damage(tmp_path / "checkpoints" / "step-000000005" / "model.safetensors")
    carry_out(tiny_run(), tmp_path, resume=True, save_every=1, keep=1, limit_steps=4)
    assert [p.name for p in (tmp_path / "checkpoints").glob("step-*4")] == ["step-000000004"]
    damage(tmp_path / "checkpoints" / "step-000000005" / "manifest.json")
    carry_out(tiny_run(), tmp_path, resume=True, save_every=2, keep=1, limit_steps=6)
    kept = sorted(p.name for p in (tmp_path / "checkpoints").glob("step-*"))
    assert kept == ["step-000000006"]


def test_a_best_model_that_the_checkpoint_before_names_outlives_a_better_one(
    tmp_path: Path,
) -> None:
    carry_out(tiny_run(seed=2), tmp_path, keep=2)
    named = {read_manifest(path)["best"] for path in (tmp_path / "checkpoints").glob("step-*")}
    kept = {int(p.name.removeprefix("best-")) for p in (tmp_path / "checkpoints").glob("best-*")}
    assert named == kept == {3, 6}  # this seed gets better


# ---- metrics ---------------------------------------------------------------------------------


def test_lost_metrics_are_told_and_never_filled_with_zeros(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out(tiny_run(), tmp_path, limit_steps=4, save_every=1)
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"metrics.jsonl lacks \d+ bytes.*; leave out --strict"):
        carry_out(tiny_run(), tmp_path, resume=True, strict=True)
    carry_out(tiny_run(), tmp_path, resume=True)
    assert "metrics.jsonl lacks" in capsys.readouterr().out
    assert b"\0" not in metrics.read_bytes()
    assert [line["epoch"] for line in RunFolder(tmp_path).metrics()] == [1]


def test_metrics_that_are_gone_begin_again_with_the_id(tmp_path: Path) -> None:
    carry_out(tiny_run(), tmp_path, limit_steps=4, save_every=1)
    header = (tmp_path / "metrics.jsonl").read_text().splitlines()[0]
    (tmp_path / "metrics.jsonl").unlink()
    carry_out(tiny_run(), tmp_path, resume=True)
    assert (tmp_path / "metrics.jsonl").read_text().splitlines()[0] == header
    assert [line["epoch"] for line in RunFolder(tmp_path).metrics()] == [1]


def test_metrics_of_another_run_are_refused(tmp_path: Path) -> None:
    carry_out(tiny_run(), tmp_path / "one", limit_steps=4)
    carry_out(tiny_run(), tmp_path / "other", limit_steps=4)
    (tmp_path / "other" / "metrics.jsonl").rename(tmp_path / "one" / "metrics.jsonl")
    with pytest.raises(
        ValueError, match=r"jsonl must begin with the id of its run, [0-9a-f]+: put"
    ):
        carry_out(tiny_run(), tmp_path / "one", resume=True)


def test_a_damaged_best_model_is_an_error_and_not_another_number(tmp_path: Path) -> None:
    carry_out(tiny_run(), tmp_path)
    (tmp_path / "result.json").unlink()
    (best,) = (tmp_path / "checkpoints").glob("best-*")
    damage(best / "model.safetensors")
    with pytest.raises(CheckpointError, match="it is the model to be reported: remove"):
        carry_out(tiny_run(), tmp_path, resume=True)


def test_the_last_checkpoints_and_the_best_are_kept(tmp_path: Path) -> None:
    carry_out(tiny_run(), tmp_path, save_every=1, keep=3)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert [name for name in names if name.startswith("step-")] == [
        "step-000000004",
        "step-000000005",
        "step-000000006",
    ]
    assert len(names) == 4


@pytest.fixture
def full_in_the_first_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes no checkpoint before the second epoch."""
    original = Trainer.batch

    def full(point: str) -> None:
        raise OSError(28, "No space left on device")

    def batch(self: Trainer, position: int) -> Any:
        monkeypatch.setattr(checkpoint, "on_point", full if position < BATCHES else None)
        return original(self, position)

    monkeypatch.setattr(Trainer, "batch", batch)


@pytest.mark.usefixtures("full_in_the_first_epoch")
def test_a_full_disk_does_not_change_the_weights(tmp_path: Path, uninterrupted: Outcome) -> None:
    carry_out(tiny_run(), tmp_path)
    files = ("model.safetensors", "optimizer.safetensors", "metrics.jsonl")
    now = outcome(tmp_path)
    assert [now[name] for name in files] == [uninterrupted[name] for name in files]


@pytest.mark.usefixtures("full_in_the_first_epoch")
def test_the_best_model_is_one_that_could_be_saved(tmp_path: Path) -> None:
    result = carry_out(tiny_run(), tmp_path)
    assert result.best_epoch == 1  # the first was as good, and is lost


def test_a_limited_run_is_not_called_done(tmp_path: Path) -> None:
    assert carry_out(tiny_run(), tmp_path, limit_steps=1).limited is True
    assert RunFolder(tmp_path).read("result.json") is None


def test_updates_and_seconds_count_over_all_sessions(tmp_path: Path) -> None:
    first = carry_out(tiny_run(), tmp_path, limit_steps=4)
    result = carry_out(tiny_run(), tmp_path, resume=True)
    assert result.updates == TOTAL - 1  # SAMPa's first batch makes no update
    assert result.seconds > first.seconds > 0


def test_a_run_without_validation_images_reports_its_last_model(tmp_path: Path) -> None:
    data = DataSpec("digits", subset=120, validation=0.0)
    result = carry_out(tiny_run(data=data, select="last", epochs=1), tmp_path)
    assert result.test == result.test_last


def test_choosing_the_best_without_validation_images_is_refused() -> None:
    with pytest.raises(ValueError, match="select must be 'last' if no images are held back"):
        tiny_run(data=DataSpec("digits", validation=0.0))


@pytest.fixture
def plain() -> Run:
    return tiny_run(method="sgd", base_epochs=1)


def test_the_plain_optimizer_has_its_own_number_of_epochs(plain: Run, tmp_path: Path) -> None:
    assert carry_out(plain, tmp_path).updates == BATCHES


def test_a_checkpoint_that_does_not_fit_the_model_is_named(tmp_path: Path) -> None:
    carry_out(tiny_run(), tmp_path, limit_steps=2)
    wider = tiny_run(model=ModelSpec("conv3", options={"width": 8}))
    with pytest.raises(CheckpointError, match=r"step-000000002 does not fit this run \(Runtime"):
        carry_out(wider, tmp_path, resume=True, allow_changes=True)


def test_other_settings_that_are_allowed_reach_the_optimizer(tmp_path: Path) -> None:
    carry_out(tiny_run(), tmp_path, limit_steps=2)
    carry_out(tiny_run(rho=0.4), tmp_path, resume=True, allow_changes=True)
    *_, last = sorted((tmp_path / "checkpoints").glob("step-*"))
    assert checkpoint.load(last).state["optimizer"]["sampa"]["settings"]["rho"] == 0.4


def test_what_a_kill_left_over_is_gone_after_the_run(tmp_path: Path) -> None:
    carry_out(tiny_run(), tmp_path, save_every=1, keep=3)
    (tmp_path / "result.json").unlink()
    (tmp_path / "checkpoints" / ".step-000000003.doomed").mkdir()
    carry_out(tiny_run(), tmp_path, resume=True, keep=1)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert [name.split("-")[0] for name in names] == ["best", "step"]


def test_a_good_checkpoint_behind_a_damaged_one_is_kept_until_a_newer_one_is_there(
    tmp_path: Path,
) -> None:
    carry_out(tiny_run(), tmp_path, limit_steps=4, save_every=1)
    damage(tmp_path / "checkpoints" / "step-000000004" / "model.safetensors")
    carry_out(tiny_run(), tmp_path, resume=True, limit_steps=3, keep=1)  # no batch, nothing saved
    assert (tmp_path / "checkpoints" / "step-000000003").exists()
