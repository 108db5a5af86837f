"""Sessions of a run in real processes, struck by a signal at an instant that no one chose.

A rank marks in shared memory which phase it is in, and knocks on a pipe when it enters the phase
that a trial is about. The signal follows some milliseconds later, from outside, wherever the rank
is by then; the mark says where it was hit.
"""

from __future__ import annotations

import json
import multiprocessing as mp
import os
import signal
import time
from collections.abc import Mapping, MutableSequence, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from sampa.lab.bench.ranks import free_port
from sampa.lab.training.run import Run
from tests.lab.training.processes import carry_out_and_exit, exit_codes
from tests.ranks import set_up_rank
from tools.stress.watch import PHASES, Blow, Watch, report_place

PATIENCE = 600.0  # seconds; a busy machine may stop all processes for minutes

_context = mp.get_context("forkserver")  # the one of tests.ranks, with everything loaded


@dataclass(frozen=True)
class Ended:
    """How a session ended.

    Attributes:
        codes: Exit codes by rank, negative for a signal.
        hit: The phase in which the watched rank was hit; "" if it was over before.
        places: What each rank that ended by itself says of where it was.
        output: What the ranks printed.
        noticed: Seconds from the signal to the end of the ranks that were not hit.
    """

    codes: list[int]
    hit: str
    places: list[dict[str, Any]]
    output: str
    noticed: float = 0.0


def session(
    run: Run, out: Path, scratch: Path, *, world: int = 1, blow: Blow | None = None, **settings: Any
) -> Ended:
    """Carry out a run, or a part of it, on real ranks; and wait for all of them."""
    scratch.mkdir(parents=True, exist_ok=True)
    marks = _context.RawArray("b", world)
    receiver, sender = _context.Pipe(duplex=False)
    port = free_port()
    ranks = [
        _context.Process(
            target=_main,
            args=(rank, world, port, run, out, scratch, blow, marks, sender),
            kwargs=settings,
            daemon=True,
        )
        for rank in range(world)
    ]
    for process in ranks:
        process.start()
    sender.close()
    noticed = 0.0
    hit = "" if blow is None else _strike(receiver, ranks, blow, marks)
    struck = time.monotonic()
    if blow is not None and hit:
        others = {r: process for r, process in enumerate(ranks) if r not in blow.ranks}
        _end_those_who_never_met(others, marks)
        for process in others.values():
            process.join(PATIENCE)
        noticed = time.monotonic() - struck
        if blow.number == signal.SIGSTOP:
            _signal([ranks[rank] for rank in blow.ranks], signal.SIGCONT)
    codes = exit_codes(ranks, PATIENCE)
    files = [scratch / f"place-{rank}.json" for rank in range(world)]
    places = [json.loads(file.read_text()) if file.exists() else {} for file in files]
    if blow is not None and hit and blow.number == signal.SIGKILL:
        hit = PHASES[marks[blow.ranks[0]]]  # what it did last
    output = (scratch / "output").read_text(errors="replace")
    return Ended(codes, hit, places, output, noticed)


def _strike(
    knocks: Connection, ranks: Sequence[BaseProcess], blow: Blow, marks: Sequence[int]
) -> str:
    """Wait for the knock and for the delay, and send the signal; the phase that it came in."""
    with suppress(EOFError):  # the ranks ended, and never came to that point
        knocks.recv_bytes()
        time.sleep(blow.delay)
        victims = [ranks[rank] for rank in blow.ranks]
        if all(process.is_alive() for process in victims):
            phase = PHASES[marks[blow.ranks[0]]]
            _signal(victims, blow.number)
            return phase
    return ""


def _signal(processes: Sequence[BaseProcess], number: int) -> None:
    for process in processes:
        assert process.pid is not None
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _end_those_who_never_met(ranks: Mapping[int, BaseProcess], marks: Sequence[int]) -> None:
    """Do what a launcher does for ranks that wait to be joined by one that is dead."""
    for rank, process in ranks.items():
        process.join(1)
        if process.is_alive() and PHASES[marks[rank]] == "start":
            process.kill()


# ---- in a rank -------------------------------------------------------------------------------


def _main(
    rank: int,
    world: int,
    port: int,
    run: Run,
    out: Path,
    scratch: Path,
    blow: Blow | None,
    marks: MutableSequence[int],
    knocks: Connection,
    **settings: Any,
) -> None:
    set_up_rank(rank, world, port)
    handle = os.open(scratch / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    watch = Watch(rank, marks, blow, knocks)
    watch.mark_phases()
    report_place(scratch / f"place-{rank}.json")
    watch.enter("start")
    carry_out_and_exit(run, out, **settings)
