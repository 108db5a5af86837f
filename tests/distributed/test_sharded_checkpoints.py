"""Sharded runs in torch's distributed checkpoint: saved on some ranks, resumed there or elsewhere.

On the same number of ranks a resumed run is the uninterrupted one bit for bit; on another one it is
up to rounding (means over other parts of a batch).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

import sampa
from tests.distributed.sharding import Case, Session, token_batches
from tests.ranks import run_ranks

pytestmark = pytest.mark.dist

TOLERANCE = 1e-12
STEPS, BATCHES = 3, token_batches(6)
CASES = {
    "sampa": Case("SAMPa", base="adamw"),
    "vasso": Case("SAMPa + VaSSO", options={"direction": sampa.Average(0.4)}),
    "sgd": Case("plain SGD", base="sgd"),
}


def parts_of(session: Session, **options: Any) -> dict[str, Any]:
    """What a user's loop saves."""
    return {
        "model": get_model_state_dict(session.model),
        "optimizer": get_optimizer_state_dict(session.model, session.optimizer),
        "extra": session.optimizer.extra_state(**options),
    }


def load(session: Session, folder: Path, **options: Any) -> None:
    parts = parts_of(session, **options)
    dcp.load(parts, checkpoint_id=folder)
    set_model_state_dict(session.model, parts["model"])
    set_optimizer_state_dict(session.model, session.optimizer, parts["optimizer"])


def save_and_resume(folder: Path) -> dict[str, dict[str, Tensor]]:
    """Save in the middle, and resume on the same ranks; gives the weights at the end."""
    mesh = sampa.mesh(branches=2)
    ends: dict[str, dict[str, Tensor]] = {}
    for name, case in CASES.items():
        session = Session(case, mesh)
        session.advance(BATCHES[:STEPS])
        live = [set(state) for state in session.optimizer.base.state.values()]
        saving = dcp.async_save(parts_of(session), checkpoint_id=folder / name)
        saving.result()  # pyright: ignore[reportAttributeAccessIssue]
        assert live == [set(state) for state in session.optimizer.base.state.values()]
        resumed = Session(case, mesh)
        load(resumed, folder / name)
        for each in (session, resumed):
            each.advance(BATCHES[STEPS:])
        ends[name] = session.weights()
        assert all(torch.equal(t, ends[name][key]) for key, t in resumed.weights().items()), name
        assert resumed.numbers == session.numbers[STEPS:]
    refuse_half(folder / "sampa", mesh)
    return ends


def refuse_half(folder: Path, mesh: Any) -> None:
    """The optimizer's state without the rest, and the other way round."""
    session = Session(CASES["sampa"], mesh)
    parts = parts_of(session)
    extra = parts.pop("extra")
    dcp.load(parts, checkpoint_id=folder)
    set_optimizer_state_dict(session.model, session.optimizer, parts["optimizer"])
    with pytest.raises(RuntimeError, match="extra_state was not loaded; save and load"):
        session.advance(BATCHES[:1])
    dcp.load({"extra": extra}, checkpoint_id=folder)
    session.advance(BATCHES[STEPS : STEPS + 1])

    session = Session(CASES["sampa"], mesh)
    dcp.load({"extra": session.optimizer.extra_state()}, checkpoint_id=folder)
    with pytest.raises(RuntimeError, match="state_dict was not loaded; save and load"):
        session.advance(BATCHES[:1])

    # torch reads back what the live state has, which never holds the method's vectors.
    flat = StateDictOptions(flatten_optimizer_state_dict=True)
    session = Session(CASES["sampa"], mesh)
    session.advance(BATCHES[:STEPS])
    state = get_optimizer_state_dict(session.model, session.optimizer, options=flat)
    set_optimizer_state_dict(session.model, session.optimizer, state, options=flat)
    with pytest.raises(RuntimeError, match=r"must have 'sampa_g' .*flatten_optimizer"):
        dcp.load({"extra": session.optimizer.extra_state()}, checkpoint_id=folder)

    changed = Session(Case("other rho", base="adamw", options={"rho": 0.3}), mesh)
    with pytest.raises(ValueError, match=r"rho must be as saved: 0\.1, got 0\.3"):
        load(changed, folder)


def resume_elsewhere(folder: Path, branches: int) -> dict[str, dict[str, Tensor]]:
    """On another number of data ranks, which hold other parts of the batch."""
    mesh = sampa.mesh(branches=branches)
    ends: dict[str, dict[str, Tensor]] = {}
    for name in ("sampa", "vasso"):
        case = CASES[name]
        session = Session(case, mesh)
        if mesh.size(1) != 2:
            with pytest.raises(dcp.CheckpointException, match=r"then call optimizer.hold\(batch\)"):
                load(session, folder / name)
            session = Session(case, mesh)
        load(session, folder / name, batch=False)
        with pytest.raises(RuntimeError, match="the held batch is missing"):
            session.advance(BATCHES[STEPS : STEPS + 1])
        session.optimizer.hold(session.own(BATCHES[STEPS - 1]))
        dist.barrier()
        dcp.save(parts_of(session), checkpoint_id=folder / f"{name}-{branches}-{mesh.size(1)}")
        session.advance(BATCHES[STEPS:])
        ends[name] = session.weights()
    return ends


def resume_again(folder: Path) -> dict[str, dict[str, Tensor]]:
    """From one process to four ranks, as one branch."""
    session = Session(CASES["sampa"], sampa.mesh(branches=1))
    load(session, folder / "sampa-1-1", batch=False)
    session.optimizer.hold(session.own(BATCHES[STEPS - 1]))
    session.advance(BATCHES[STEPS:])
    return {"sampa": session.weights()}


@pytest.mark.slow
def test_checkpoints_move_between_four_two_and_one_rank(tmp_path: Path) -> None:
    expected = run_ranks(4, save_and_resume, tmp_path, timeout=600)[0]
    runs = [
        *run_ranks(2, resume_elsewhere, tmp_path, 1),
        *run_ranks(2, resume_elsewhere, tmp_path, 2),
        *run_ranks(1, resume_elsewhere, tmp_path, 1),
        *run_ranks(4, resume_again, tmp_path),
    ]
    for ends in runs:
        for name, weights in ends.items():
            far = [(t - expected[name][key]).abs().max().item() for key, t in weights.items()]
            assert max(far) < TOLERANCE, name
