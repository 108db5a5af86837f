"""A run small enough for hundreds of repetitions, and what must be equal after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sampa.lab.results.outcome import RunResult
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.loop import train
from sampa.lab.training.run import BaseSpec, DataSpec, ModelSpec, Run
from sampa.lab.training.session import Settings

BATCHES = 3  # in an epoch of the tiny run
TOTAL = 2 * BATCHES


def tiny_run(**changes: Any) -> Run:
    """Two epochs of three batches: moved digits with wrong labels, convolutions with BatchNorm."""
    run = Run(
        name="tiny",
        about="for tests",
        data=DataSpec("digits", subset=120, label_noise=0.2, validation=0.2),
        model=ModelSpec("conv3", options={"width": 4}),
        base=BaseSpec(lr=0.05),
        rhos={"sampa": 0.2},
        epochs=2,
        batch_size=32,
    )
    return run.changed(**changes)


def carry_out(run: Run, out: Path, **settings: Any) -> RunResult:
    return train(run, out, Settings(device="cpu", quiet=True, **settings))


Outcome = dict[str, bytes | dict[str, Any]]


def outcome(out: Path, position: int = TOTAL) -> Outcome:
    """Everything that an interruption must not change, byte for byte."""
    saved = out / "checkpoints" / f"step-{position:09}"
    files = [f for f in saved.iterdir() if f.stem.split("-")[0] in ("model", "optimizer")]
    result, saved_run = RunFolder(out).read("result.json"), RunFolder(out).read("run.json")
    header, *lines = (out / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    assert len(files) in (4, 8)  # those of two ranks, if the run is sharded
    assert saved_run is not None
    assert json.loads(header) == {"run_id": saved_run["id"]}  # each run has its own
    assert result is not None
    del result["seconds"], result["core_seconds"]
    return {
        **{file.name: file.read_bytes() for file in files},
        "metrics.jsonl": b"".join(lines),
        "result.json": result,
    }
