"""Every method on two real processes: branches agree with serial bit for bit, replicas stay alike.

All names run in one start of the processes; the tests look at the results one by one.
"""

from __future__ import annotations

import copy
import traceback
import warnings
from itertools import product
from typing import Any

import pytest
import torch

import sampa
from sampa.execution.executor import Executor
from tests.problems import flat, image_batches, same_bits, sgd, small_net, vector_batches
from tests.ranks import run_ranks
from tests.variants import ACTIVE, Sample, loss_of, normalized_mlp, numbered

pytestmark = pytest.mark.dist

BATCHES = numbered(image_batches(3))  # an epoch of three batches
SEVERAL_PROBES = [n for n in ACTIVE if n.startswith("sampa") or n in ("msam", "async-sam")]
ONE_PROBE = [n for n in ACTIVE if n not in SEVERAL_PROBES]

EPOCHS = {name: 7 if name in SEVERAL_PROBES else 3 for name in ACTIVE}  # 21 steps, or nine
Result = dict[str, Any]


def train(
    name: str,
    executor: Executor,
    model: Any,
    share: int = 1,
    batches: list[Sample] = BATCHES,
) -> Result:
    """Losses of all steps and the final state."""
    assert executor.module is not None
    optimizer = ACTIVE[name](sgd(executor.module, momentum=0.5), executor=executor, seed=0)
    losses: list[float] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for epoch, whole in product(range(EPOCHS[name]), batches):
            optimizer.set_epoch(epoch)
            batch = own_samples(whole, executor.data_rank, share)
            losses.append(optimizer.step(loss_of(model), batch).item())
    executor.sync_buffers()
    assert executor.module is not None
    return {
        "losses": losses,
        "model": copy.deepcopy(executor.module.state_dict()),
        "optimizer": copy.deepcopy(optimizer.state_dict()),
        "warnings": [str(w.message) for w in warned],
    }


def own_samples(batch: Sample, rank: int, share: int) -> Any:
    return tuple(t[rank::share] for t in batch)


def on_ranks(branches: int, names: list[str]) -> dict[str, Result | str]:
    results: dict[str, Result | str] = {}
    for name in names:
        try:
            executor = sampa.distribute(small_net(), branches=branches)
            results[name] = train(name, executor, executor.model, share=2 // branches)
        except Exception:
            results[name] = traceback.format_exc()
    return results


@pytest.fixture(scope="module")
def branches() -> list[dict[str, Any]]:
    """Two branches, one data rank: 2 × 1."""
    return run_ranks(2, on_ranks, 2, list(ACTIVE))


@pytest.fixture(scope="module")
def replicas() -> list[dict[str, Any]]:
    """One branch, two data ranks: 1 × 2."""
    return run_ranks(2, on_ranks, 1, list(ACTIVE))


def alike(a: Result, b: Result) -> bool:
    return all(same_bits(a[key], b[key]) for key in ("losses", "model", "optimizer"))


def finished(results: list[dict[str, Any]], name: str) -> list[Result]:
    for rank, result in enumerate(results):
        assert isinstance(result[name], dict), f"rank {rank}: {result[name]}"
    return [result[name] for result in results]


@pytest.mark.parametrize("name", ACTIVE)
def test_two_branches_equal_serial_bitwise(branches: list[dict[str, Any]], name: str) -> None:
    """Losses of all steps, weights, BatchNorm statistics, momentum, and the method's own state."""
    model = small_net()
    serial = train(name, sampa.Serial(model), model)
    for result in finished(branches, name):
        assert alike(result, serial)


@pytest.mark.parametrize("name", SEVERAL_PROBES)
def test_a_method_with_several_probes_keeps_both_branches_busy(
    branches: list[dict[str, Any]], name: str
) -> None:
    assert not any(r["warnings"] for r in finished(branches, name))


@pytest.mark.parametrize("name", ONE_PROBE)
def test_a_method_with_one_probe_a_round_warns_about_idle_branches(
    branches: list[dict[str, Any]], name: str
) -> None:
    for result in finished(branches, name):
        assert "at most 1 probe(s) a round" in result["warnings"][0]


@pytest.mark.parametrize("name", ACTIVE)
def test_data_ranks_keep_the_same_weights(replicas: list[dict[str, Any]], name: str) -> None:
    """Each rank sees its own half of every batch."""
    first, second = finished(replicas, name)
    assert same_bits(first["model"], second["model"])


@pytest.mark.parametrize("name", ACTIVE)
def test_data_ranks_train(replicas: list[dict[str, Any]], name: str) -> None:
    first, _ = finished(replicas, name)
    trained = small_net()
    trained.load_state_dict(first["model"])
    assert (flat(trained) - flat(small_net())).norm() > 0.05


# ---- data ranks against the whole batch ----------------------------------------------------------

# What these do depends on who sees which samples: micro-batches, the samples of a Fisher mask, the
# hardest of a rank's own, the first of a rank's own.
BY_RANK = ("msam", "ssam-f", "esam", "async-sam", "sampa+msam")
WHOLE = [name for name in ACTIVE if name not in BY_RANK]
SMOOTH = numbered(vector_batches(3))


def smooth_on_ranks(names: list[str]) -> dict[str, Result | str]:
    results: dict[str, Result | str] = {}
    for name in names:
        executor = sampa.distribute(normalized_mlp(), branches=1)
        results[name] = train(name, executor, executor.model, share=2, batches=SMOOTH)
    return results


@pytest.fixture(scope="module")
def halves() -> list[dict[str, Any]]:
    """Two data ranks with half of every batch each, float64, nothing that depends on the rank."""
    return run_ranks(2, smooth_on_ranks, WHOLE)


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_data_ranks_take_the_steps_of_the_whole_batch(
    halves: list[dict[str, Any]], name: str
) -> None:
    """Norms, inner products, averages and decisions come from the common gradient."""
    model = normalized_mlp()
    serial = train(name, sampa.Serial(model), model, batches=SMOOTH)
    for key, value in serial["model"].items():
        # The mean over six samples is summed in another order; at most 21 steps in float64.
        torch.testing.assert_close(halves[0][name]["model"][key], value, rtol=0, atol=1e-11)
