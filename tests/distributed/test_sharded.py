"""Weights that are sharded by `fully_shard`: the steps of one process on the whole batch.

A mean over data ranks rounds differently from one over the batch, so equality holds to rounding: in
float64 runs stay within 1e-15 of each other. A norm of one shard alone, or a probe that did not see
its move, would show at about 1e-3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

import sampa
import sampa.flatness
from sampa.vectors.vector import local
from tests.distributed.sharding import (
    Case,
    Convolutions,
    Optional,
    Sample,
    Session,
    Transformer,
    difference,
    token_batches,
)
from tests.ranks import run_ranks

pytestmark = pytest.mark.dist

TOLERANCE = 1e-12


def evaluate(model: nn.Module, batch: Sample) -> None:
    """Leaves FSDP's root group gathered, and with reshard_after_forward=False all groups."""
    model.eval()
    with torch.no_grad():
        model(batch[0])
    model.train()


def freeze_first_block(model: nn.Module) -> None:
    assert isinstance(model, Transformer)
    model.blocks[0].requires_grad_(False)
    model.place.requires_grad_(False)


def two_groups(model: nn.Module) -> list[dict[str, Any]]:
    norms = [p for name, p in model.named_parameters() if "norm" in name]
    others = [p for name, p in model.named_parameters() if "norm" not in name]
    return [{"params": others, "rho": 0.3}, {"params": norms, "lr": 0.01, "rho": 0.05}]


def compare(cases: list[Case]) -> dict[str, float]:
    """How far each sharded run is from the same in one process."""
    batches = token_batches(max(case.steps for case in cases))
    meshes = {branches: sampa.mesh(branches=branches) for branches in {c.branches for c in cases}}
    found: dict[str, float] = {}
    for case in cases:
        sharded = Session(case, meshes[case.branches])
        alone = Session(case)
        for session in (sharded, alone):
            session.advance(batches[: case.steps])
        found[case.name] = difference(sharded, alone)
    return found


def assert_equal(ranks: list[dict[str, float]]) -> None:
    assert [(name, far) for found in ranks for name, far in found.items() if far > TOLERANCE] == []


QUICK = [
    Case("SAM", sampa.SAM, branches=1, steps=3),
    Case("ASAM by layer", partial(sampa.ASAM, operator="layer"), branches=1, steps=3),
    Case("SAMPa", base="adamw", steps=3, between=evaluate),
]


def test_two_ranks_with_shards_take_the_steps_of_one_process() -> None:
    assert_equal(run_ranks(2, compare, QUICK))


METHODS = [
    Case("SAM", sampa.SAM, branches=1),
    Case("SAM, AdamW", sampa.SAM, branches=1, base="adamw"),
    Case("SAMPa"),
    Case("SAMPa, AdamW", base="adamw"),
    Case("SAMPa, AdamW foreach", base="adamw-foreach"),
    Case("SAMPa, AdamW fused", base="adamw-fused"),
    Case("SAMPa, nesterov", base="sgd-nesterov"),
    Case("SAMPa 1 x 4", branches=1),
    Case("SAMPa, published start", partial(sampa.SAMPa, bootstrap="script")),
    Case("ASAM", sampa.ASAM, branches=1),
    Case("ASAM, p = inf", partial(sampa.ASAM, p=float("inf"), rho=0.01), branches=1),
    Case("ASAM by filter", partial(sampa.ASAM, operator="filter"), branches=1, net=Convolutions),
    Case("ASAM by layer", partial(sampa.ASAM, operator="layer"), branches=1, net=Convolutions),
    Case("GSAM", sampa.GSAM, branches=1),
    Case("VaSSO, AdamW", sampa.VaSSO, branches=1, base="adamw"),
    Case("LookSAM", partial(sampa.LookSAM, k=2), branches=1),
    Case("LookSAM by tensor", partial(sampa.LookSAM, k=2, per_tensor=True), branches=1),
    Case("SAM-ON", sampa.SAMON, branches=1),
    Case("RandSAM", sampa.RandSAM, branches=1),
    Case("MomentumSAM", sampa.MomentumSAM, branches=1),
    Case("SAMPa + VaSSO", partial(sampa.SAMPa, direction=sampa.Average(0.4))),
    Case("SAMPa + ASAM", partial(sampa.SAMPa, geometry=sampa.Adaptive()), base="adamw"),
    Case(
        "SAMPa + ASAM by layer",
        partial(sampa.SAMPa, geometry=sampa.Adaptive(operator="layer")),
        net=Convolutions,
    ),
    Case("SAMPa + SAM-ON", partial(sampa.SAMPa, geometry=sampa.OnNorms())),
    Case("SAMPa + BiSAM", partial(sampa.SAMPa, ascent_loss=sampa.ZeroOneBound())),
    Case("MESA", partial(sampa.MESA, start_epoch=0, decay=0.5), branches=1, epochs=True),
]
SETTINGS = [
    Case("evaluation between steps", between=evaluate),
    Case("evaluation between steps, SAM", sampa.SAM, branches=1, between=evaluate),
    Case("gathered for backward", sharding={"reshard_after_forward": False}, between=evaluate),
    Case(
        "gathered for backward, SAM",
        sampa.SAM,
        branches=1,
        sharding={"reshard_after_forward": False},
        between=evaluate,
    ),
    Case(
        "forward-only probes, gathered",
        partial(sampa.MESA, start_epoch=0, decay=0.5),
        branches=1,
        epochs=True,
        sharding={"reshard_after_forward": False},
        between=evaluate,
    ),
    Case("frozen parts", prepare=freeze_first_block, base="adamw"),
    Case("groups with their own radii", groups=two_groups),
    Case("clipping", options={"max_norm": 0.1}),
    Case("accumulation", options={"accumulate": 2}),
    Case("small buckets", distribute={"bucket_mb": 1e-4}),
    Case("a layer used by one branch", net=Optional, distribute={"find_unused_parameters": True}),
    Case("offload", sharding={"offload_policy": CPUOffloadPolicy(pin_memory=False)}),
    Case("late checks", base="adamw-fused", options={"checks": "late"}),
]
BF16 = Case(
    "bf16",
    sharding={"mp_policy": MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32)},
    dtype=torch.float32,
)
# What depends on which samples a data rank has.
PER_RANK = [
    Case("batch norm", net=partial(Convolutions, batch_norm=True), between=evaluate),
    Case("SAMPa + mSAM", partial(sampa.SAMPa, micro_batches=sampa.MicroBatches(2))),
]


def compare_with_replicas() -> dict[str, float]:
    """Every method of the catalog on shards, and on ranks that each have the whole model."""
    mesh = sampa.mesh(branches=1)
    both = sampa.mesh(branches=2)
    batches = token_batches(4)
    settings: dict[str, dict[str, Any]] = {
        "looksam": {"k": 2},
        "saf": {"start_epoch": 0, "gap": 1},
        "mesa": {"start_epoch": 0, "decay": 0.5},
        "msam": {"micro_batch_size": 1},
    }
    cases = [
        Case(name, make, settings.get(name, {}), branches=1, epochs=True)
        for name, make in sampa.METHODS.items()
        if name not in ("ssam-f", "ssam-d")
    ]
    found: dict[str, float] = {}
    for case in [*cases, *PER_RANK]:
        used = mesh if case.branches == 1 else both
        sharded, replicas = Session(case, used), Session(case, used, sharded=False)
        for session in (sharded, replicas):
            session.advance(batches)
        found[case.name] = difference(sharded, replicas)
    return found


@pytest.mark.slow
def test_every_method_takes_the_steps_of_unsharded_ranks() -> None:
    assert_equal(run_ranks(4, compare_with_replicas, timeout=900))


@pytest.mark.slow
def test_four_ranks_with_shards_take_the_steps_of_one_process() -> None:
    assert_equal(run_ranks(4, compare, [*METHODS, *SETTINGS], timeout=900))


# ---- one launch of two by two for what is counted or looked at ------------------------------


def look() -> None:
    mesh = sampa.mesh(branches=2)
    count_bytes(mesh)
    compute_in_bf16(mesh)
    skip_together(mesh)


def count_bytes(mesh: DeviceMesh) -> None:
    """A rank sends its own shard, P/n bytes, to the other branch: once a step."""
    session = Session(Case("bytes", base="adamw"), mesh)
    first, *others = token_batches(3)
    session.advance([first])  # one probe: nothing to exchange
    assert session.executor.traffic.gradient_bytes == 0
    own = local(session.model.parameters())
    session.advance(others)
    assert session.executor.traffic.gradient_bytes == 2 * sum(t.nbytes for t in own)
    sizes: list[Any] = [None] * 4
    torch.distributed.all_gather_object(sizes, sum(t.numel() for t in own))
    assert sum(sizes[:2]) == sum(p.numel() for p in session.model.parameters())
    rounded = {"exchange_dtype": torch.bfloat16, "check_every": 1}  # weights, bit for bit
    session = Session(Case("rounded", base="adamw", distribute=rounded), mesh)
    session.advance([first, *others])
    assert session.executor.traffic.gradient_bytes == 2 * 2 * sum(t.numel() for t in own)


def compute_in_bf16(mesh: DeviceMesh) -> None:
    sharded, alone = Session(BF16, mesh), Session(BF16)
    for session in (sharded, alone):
        session.advance(token_batches(5))
    assert {p.dtype for p in sharded.model.parameters()} == {torch.float32}
    # bf16 has a precision of 0.4 %, of losses and norms of about 2.5.
    assert 1e-6 < difference(sharded, alone) < 0.1


def skip_together(mesh: DeviceMesh) -> None:
    """A gradient that is not finite on one rank, in a part of the weights."""
    session = Session(Case("skip"), mesh)
    *good, bad = token_batches(4)
    session.advance(good)
    before, fine = session.weights(), session.loss_fn
    is_bad = session.executor.data_rank == 1

    def loss_fn(batch: Sample) -> sampa.Loss:
        loss = fine(batch)
        assert loss.value is not None
        factor = torch.nan if is_bad and session.executor.branch == 1 else 1.0
        return sampa.Loss(loss.value * factor)

    session.loss_fn = loss_fn
    session.optimizer.step(loss_fn, session.own(bad))
    assert session.optimizer.last is not None
    assert session.optimizer.last.skipped
    assert all(torch.equal(t, before[name]) for name, t in session.weights().items())


@pytest.mark.slow
def test_two_by_two_ranks_send_their_shards_alone_and_skip_together() -> None:
    run_ranks(4, look)


# ---- what is refused --------------------------------------------------------------------------


def refuse() -> None:
    mesh = sampa.mesh(branches=2)
    every = init_device_mesh("cpu", (2,))

    def by_column(p: nn.Parameter) -> Shard:
        return Shard(p.ndim - 1)

    def tensor_parallel(model: nn.Module) -> None:
        assert isinstance(model, nn.Linear)
        model.weight = nn.Parameter(distribute_tensor(model.weight, every, [Shard(0)]))

    def without_bias(model: nn.Module) -> None:
        assert isinstance(model, nn.Linear)
        fully_shard(model, mesh=mesh["data"], ignored_params={model.bias})

    wrong: list[tuple[Callable[[nn.Module], Any], str]] = [
        (partial(fully_shard, mesh=every), r"the data ranks of this branch are \[0\]: "),
        (without_bias, "as a plain tensor"),
        (partial(fully_shard, mesh=mesh["data"], shard_placement_fn=by_column), "leave out shard_"),
        (partial(fully_shard, mesh=mesh), "tensor parallel and hybrid sharding are not supported"),
        (tensor_parallel, "as a DTensor that fully_shard did not make: tensor parallel"),
    ]
    for cut, message in wrong:
        model = nn.Linear(4, 4)
        cut(model)
        with pytest.raises(ValueError, match=message):
            sampa.distribute(model, mesh=mesh)
        with pytest.raises(ValueError, match="make the mesh first"):
            sampa.distribute(model)
    refuse_plans()
    sharded = Session(Case("SAMPa"), mesh)
    with pytest.raises(ValueError, match=r"sampa.flatness takes a whole model, got a sharded one"):
        sampa.flatness.sharpness(sharded.model, sharded.loss_fn, token_batches(1))
    with pytest.raises(ValueError, match="SparseSAMMethod needs all weights at once, got a shard"):
        Session(Case("SSAM", sampa.SparseSAM), mesh)
    with pytest.raises(ValueError, match="sync_perturbation must be True for a sharded model"):
        Session(Case("local", sampa.SAM, {"sync_perturbation": False}), mesh)
    refuse_later(mesh)


def refuse_plans() -> None:
    """Tensor parallel as users write it, alone and with FSDP."""
    mesh = sampa.mesh(branches=1)
    both = init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "tensor"))
    plan: dict[str, ParallelStyle] = {"up": ColwiseParallel(), "down": RowwiseParallel()}

    def planned(over: DeviceMesh) -> Transformer:
        model = Transformer()
        for block in model.blocks:
            parallelize_module(block, over, plan)
        return model

    with pytest.raises(ValueError, match=r"'blocks.0.up.weight' as a DTensor that fully_shard did"):
        sampa.distribute(planned(mesh["data"]), mesh=mesh)
    model = planned(both["tensor"])
    fully_shard(model, mesh=both["data"])
    with pytest.raises(ValueError, match="tensor parallel and hybrid sharding are not supported"):
        sampa.distribute(model, mesh=mesh)
    three = init_device_mesh("cpu", (1, 1, 2), mesh_dim_names=("branch", "data", "tensor"))
    with pytest.raises(ValueError, match=r"mesh must be one of sampa.mesh, with dimensions"):
        sampa.distribute(model, mesh=three)


def refuse_later(mesh: DeviceMesh) -> None:
    session = Session(Case("unused", net=Optional), mesh)
    with pytest.raises(RuntimeError, match="no gradient arrived for 'extra"):
        session.advance(token_batches(4)[::2])
    # The layer takes part in the pass of the incoming batch, and not in that of the held one.
    session = Session(Case("unused on one branch", net=Optional), mesh)
    with pytest.raises(RuntimeError, match=r"no gradient arrived for 'extra.*' on rank\(s\) \[0\]"):
        session.advance(token_batches(2))
    session = Session(Case("frozen later"), mesh)
    batches = token_batches(4)
    session.advance(batches[:2])
    next(session.model.parameters()).requires_grad_(False)
    with pytest.raises(RuntimeError, match="a sharded model must train the same parameters"):
        session.advance(batches[2:])
    session = Session(Case("a buffer later"), mesh)
    session.advance(batches[:2])
    session.model.register_buffer("passes", torch.zeros(()))
    with pytest.raises(RuntimeError, match=r"at the first one \(or other buffers\)"):
        session.advance(batches[2:])


def test_what_cannot_be_sharded_is_refused_with_what_to_do() -> None:
    run_ranks(2, refuse)


def in_plain_python() -> None:
    mesh = sampa.mesh(branches=2)
    assert (mesh.mesh_dim_names, tuple(mesh.shape)) == (("branch", "data"), (1, 1))
    case = Case("alone", base="adamw")
    sharded, alone = Session(case, mesh), Session(case)
    for session in (sharded, alone):
        session.advance(token_batches(4))
    assert difference(sharded, alone) == 0.0


def test_the_same_script_runs_in_one_process() -> None:
    run_ranks(1, in_plain_python)
