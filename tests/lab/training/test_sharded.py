"""Runs with --shard: each rank saves its rows, and any number of ranks goes on from them.

On as many ranks a resumed run is the uninterrupted one bit for bit. On another number each rank has
another part of a batch, and means round differently: without BatchNorm the weights of these runs
stay within 1e-5 of each other in float32.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from sampa.lab.models import build
from sampa.lab.training import checkpoint
from sampa.lab.training.checkpoint import NEWEST
from sampa.lab.training.manifest import MANIFEST, CheckpointError
from sampa.lab.training.run import ModelSpec, Run
from sampa.lab.training.saved import load_saved
from sampa.lab.training.session import Settings
from sampa.lab.training.sharding import layers_of, require_run_shards
from sampa.lab.training.shards import Assembly, Shards
from sampa.lab.training.trees import Shard
from sampa.messages import WrongUsage
from tests.lab.training.processes import run_ranks
from tests.lab.training.runs import carry_out, outcome, tiny_run
from tests.lab.training.test_checkpoint import forge

TOLERANCE = 1e-5


# ---- rows, cut and put together without processes ----------------------------------------------


@dataclass(frozen=True)
class Part(Shards):
    """As if this process had one of several parts."""

    of: tuple[int, int] = (0, 1)

    @property
    def number(self) -> int:
        return self.of[0]

    @property
    def count(self) -> int:
        return self.of[1]


@pytest.mark.parametrize("rows", [0, 1, 3, 7, 8])
@pytest.mark.parametrize("written", [1, 2, 3, 5])
@pytest.mark.parametrize("read", [1, 2, 4])
def test_rows_are_cut_anew_for_another_number_of_ranks(rows: int, written: int, read: int) -> None:
    whole = torch.arange(rows * 2.0).view(rows, 2)
    found: list[Tensor] = []
    for number in range(read):
        assembly = Assembly(Part(of=(number, read)))
        for writer in range(written):
            first, last = Part(of=(writer, written)).rows(whole.shape)
            node = Shard("weight", (rows, 2), (first, 0)).as_json()
            assembly.add([node], {"weight": whole[first:last]})
        found.append(assembly.tensors()["weight"])
    assert [len(t) for t in found] == [len(t) for t in chunks(whole, read)]
    assert torch.equal(torch.cat(found), whole)


def chunks(whole: Tensor, count: int) -> list[Tensor]:
    """As torch cuts: the rest, perhaps nothing, is for the last."""
    found = list(whole.chunk(count))
    return found + [whole[:0]] * (count - len(found))


def test_parts_of_a_recipe_s_model_are_its_layers() -> None:
    resnet = build("resnet20", num_classes=10, in_channels=3)
    layers = list(layers_of(resnet))
    assert [type(layer).__name__ for layer in layers] == ["BasicBlock"] * 9
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3))
    tied[2].weight = tied[0].weight
    assert list(layers_of(tied)) == [tied[1]]


@pytest.mark.parametrize(
    ("changes", "settings", "message"),
    [
        ({"compile": True}, {}, "--compile is not tried with it; leave out one"),
        ({}, {"flatness_every": 1}, "--flatness-every needs all weights"),
    ],
)
def test_what_needs_the_whole_model_is_refused(
    changes: dict[str, bool], settings: dict[str, int], message: str
) -> None:
    with pytest.raises(WrongUsage, match=message):
        require_run_shards(tiny_run(**changes), None, Settings(shard=True, **settings))  # pyright: ignore[reportArgumentType]


# ---- runs on real ranks ------------------------------------------------------------------------


def weights_of(out: Path) -> dict[str, Tensor]:
    found = checkpoint.newest(out / "checkpoints", NEWEST, print)
    assert found is not None
    return found.state["model"]


def run_to_the_end(run: Run, out: Path, world: int, *, resume: bool = False) -> None:
    assert run_ranks(run, out, world=world, shard=True, resume=resume) == [0] * world


@pytest.mark.slow
@pytest.mark.dist
def test_two_ranks_with_half_of_the_weights_each_resume_bit_for_bit(
    tmp_path: Path,
) -> None:
    run, halves, whole = tiny_run(method="sam"), tmp_path / "halves", tmp_path / "whole"
    run_to_the_end(run, whole, 2)
    assert run_ranks(run, halves, world=2, shard=True, limit_steps=4) == [0, 0]
    stopped = tmp_path / "stopped"
    shutil.copytree(halves, stopped)
    run_to_the_end(run, halves, 2, resume=True)
    assert outcome(halves) == outcome(whole)

    result = json.loads((whole / "result.json").read_text())
    saved = load_saved(whole)  # as `sampa eval` does
    assert saved.task.evaluate(saved.model.eval(), "test") == pytest.approx(result["test"])

    with pytest.raises(
        CheckpointError, match=r"it was saved with --shard\); resume with the command"
    ):
        carry_out(run, stopped, resume=True)
    damage(stopped / "checkpoints" / "step-000000004")


def damage(path: Path) -> None:
    """What is wrong with the rows is told, also where all hashes are right."""
    file = path / "model-2-of-2.json"
    nodes = json.loads(file.read_text())
    name, shape, offsets = nodes[0]["$shard"]
    for wrong in ([name, shape, [offsets[0] + 1, *offsets[1:]]], [name, shape[:1], offsets], 5):
        forge(file, json.dumps([{"$shard": wrong}, *nodes[1:]]).encode())
        with pytest.raises(CheckpointError, match="does not hold together"):
            checkpoint.load(path)
    forge(file, json.dumps(nodes[1:]).encode())
    with pytest.raises(CheckpointError, match=r"rows of \d+"):
        checkpoint.load(path)
    forge(file, json.dumps(nodes).encode())
    checkpoint.load(path)
    manifest = json.loads((path / MANIFEST).read_text())
    assert {"model-1-of-2.safetensors", "optimizer-2-of-2.json", "loop.json"} <= {
        *manifest["sha256"]
    }
    (path / "optimizer-2-of-2.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"optimizer-2-of-2.safetensors cannot be read"):
        checkpoint.load(path)


@pytest.mark.slow
@pytest.mark.dist
def test_runs_move_between_four_two_and_one_rank(tmp_path: Path) -> None:
    run = tiny_run(model=ModelSpec("mlp"))
    run_to_the_end(run, tmp_path / "whole", 4)
    expected = weights_of(tmp_path / "whole")
    assert run_ranks(run, tmp_path / "begun", world=4, shard=True, limit_steps=3) == [0] * 4
    for world in (4, 2, 1):
        out = tmp_path / str(world)
        shutil.copytree(tmp_path / "begun", out)
        run_to_the_end(run, out, world, resume=True)
        found = weights_of(out)
        far = max((found[name] - t).abs().max().item() for name, t in expected.items())
        assert far == 0.0 if world == 4 else far < TOLERANCE
    assert outcome(tmp_path / "4") == outcome(tmp_path / "whole")
    # And from one rank to four.
    assert run_ranks(run, tmp_path / "one", world=1, shard=True, limit_steps=3) == [0]
    run_to_the_end(run, tmp_path / "one", 4, resume=True)
    found = weights_of(tmp_path / "one")
    assert all(torch.allclose(found[name], t, atol=TOLERANCE) for name, t in expected.items())
