"""Others' optimizers as they are trained beside ours: against the plain recurrences, and ours."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import sampa
from sampa.lab.reproduce.catalog import EXPERIMENTS
from sampa.lab.reproduce.peer_optimizers import PlainSAM, ScriptSAMPa, without_statistics
from sampa.lab.reproduce.request import Request
from sampa.lab.reproduce.speed import PEER_NAMES
from tests.problems import cross_entropy_of, flat, tiny_mlp, trajectory, vector_batches

BATCHES, RHO = vector_batches(6), 0.3


def sgd(model: nn.Module, decay: float) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=decay)


def visited(kind: type[PlainSAM] | type[ScriptSAMPa], decay: float) -> list[torch.Tensor]:
    model = tiny_mlp()
    peer = kind(model, sgd(model, decay), RHO)
    found: list[torch.Tensor] = []
    for batch in BATCHES:
        peer.step(cross_entropy_of(model), batch)
        found.append(flat(model))
    return found


def distance(a: list[torch.Tensor], b: list[torch.Tensor]) -> float:
    return max((x - y).abs().max().item() for x, y in zip(a, b, strict=True))


def test_sam_takes_our_steps() -> None:
    model = tiny_mlp()
    ours = sampa.SAM(sgd(model, 0.01), rho=RHO)
    path = trajectory(ours, model, BATCHES, cross_entropy_of(model))
    assert distance(path, visited(PlainSAM, 0.01)) < 1e-12


def test_sampa_takes_our_steps_with_the_scripts_start() -> None:
    """Without weight decay, which the script leaves out of its first y."""
    model = tiny_mlp()
    ours = sampa.SAMPa(sgd(model, 0.0), rho=RHO, lam=0.2, bootstrap="script")
    path = trajectory(ours, model, BATCHES, cross_entropy_of(model))
    assert distance(path, visited(ScriptSAMPa, 0.0)) < 1e-12


def test_the_scripts_first_lookahead_leaves_weight_decay_out() -> None:
    model = tiny_mlp()
    script = ScriptSAMPa(model, sgd(model, 0.5), RHO)
    first = next(iter(model.parameters()))
    g = torch.ones_like(first)
    torch.testing.assert_close(script._lookahead(first, g), 0.1 * g)
    script.step(cross_entropy_of(model), BATCHES[0])
    buffer = script.base.state[first]["momentum_buffer"]
    torch.testing.assert_close(
        script._lookahead(first, g), 0.1 * (0.9 * buffer + g + 0.5 * first.detach())
    )


def test_statistics_stay_as_they_are() -> None:
    model = nn.BatchNorm1d(3)
    before = {name: value.clone() for name, value in model.named_buffers()}
    with without_statistics(model):
        model(torch.randn(8, 3))
    torch.testing.assert_close(model.running_mean, before["running_mean"])
    assert model.momentum == 0.1


def test_both_are_trained_on_the_same_data_and_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request("smoke", tmp_path, seeds=2)
    outcome = EXPERIMENTS["peers"].outcome(request)
    accuracies = {e.column: e for e in outcome.entries if e.row == "test accuracy"}
    assert set(accuracies) == {*PEER_NAMES, *PEER_NAMES.values()}
    for name, theirs in PEER_NAMES.items():
        assert accuracies[theirs].values.keys() == accuracies[name].values.keys() == {0, 1}
    assert {c.pair for c in outcome.comparisons()} == {
        f"{theirs} − {name}" for name, theirs in PEER_NAMES.items()
    }
    # The same first batches and weights: a short run of SAM ends as ours does.
    assert accuracies[PEER_NAMES["SAM"]].values == accuracies["SAM"].values
    monkeypatch.setattr("sampa.lab.training.loop.Trainer.fit", lambda _: pytest.fail("it trained"))
    assert EXPERIMENTS["peers"].outcome(request) == outcome
