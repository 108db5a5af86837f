"""Branches on one machine exchange gradients through shared memory, or over the network if not."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path

import pytest
import torch.distributed as dist
from torch import Tensor, nn

import sampa
from sampa.execution.parallel import shared_memory
from sampa.execution.parallel.network import NetworkExchange
from sampa.execution.parallel.shared_memory import SharedMemoryExchange
from tests.distributed.training import Outcome, Run, Session, cross_entropy, differences, serial
from tests.problems import Batch
from tests.ranks import collect_ranks, run_ranks

pytestmark = pytest.mark.dist


def exchange_of(run: Run) -> type:
    executor = Session(run).executor
    assert isinstance(executor, sampa.Parallel)
    return type(executor.exchange)


def test_branches_on_one_machine_share_memory() -> None:
    assert run_ranks(2, exchange_of, Run()) == [SharedMemoryExchange] * 2


@pytest.mark.parametrize("distribute", [{"branches": 1}, {"shared_memory": False}], ids=str)
def test_data_ranks_and_those_told_so_use_the_network(distribute: dict[str, object]) -> None:
    run = Run(make=sampa.SAM, distribute=distribute)
    assert run_ranks(2, exchange_of, run) == [NetworkExchange] * 2


def without_a_folder(run: Run) -> tuple[type, Outcome]:
    shared_memory.MEMORY_FOLDER = Path("/there/is/no/such/folder")
    session = Session(run)
    session.advance(run.steps)
    assert isinstance(session.executor, sampa.Parallel)
    return type(session.executor.exchange), session.outcome()


def test_a_machine_without_shared_memory_uses_the_network_with_the_same_bits() -> None:
    for used, outcome in run_ranks(2, without_a_folder, Run()):
        assert used is NetworkExchange
        assert differences(outcome, serial(Run())) == []


def without_room() -> type:
    """The system refuses to reserve the file."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    return exchange_of(Run())


def test_too_little_memory_is_no_error() -> None:
    assert run_ranks(2, without_room) == [NetworkExchange] * 2


def memory_in_use(run: Run) -> list[str]:
    """The files behind this process's memory; the system marks those without a name.

    Not the names in the folder: it is that of all processes of the machine.
    """
    session = Session(run)
    session.advance(2)
    dist.barrier()
    maps = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in maps if f"{shared_memory.MEMORY_FOLDER}/sampa-" in line]


def test_the_memory_has_no_name_once_it_is_open() -> None:
    for used in run_ranks(2, memory_in_use, Run()):
        assert used
        assert [line for line in used if not line.endswith(" (deleted)")] == []


def dawdle(model: nn.Module, batch: Batch) -> Tensor:
    """One rank, then the other, is late."""
    number = int(batch[0].flatten()[0].item() * 1000) % 2
    if number == dist.get_rank():
        time.sleep(0.02)
    return cross_entropy(model, batch)


def test_a_slow_reader_sees_the_gradient_that_was_meant() -> None:
    run = Run(steps=10, loss=dawdle)
    expected = serial(Run(steps=10))
    for outcome in run_ranks(2, train, run):
        assert differences(outcome, expected) == []


def train(run: Run) -> Outcome:
    session = Session(run)
    session.advance(run.steps)
    return session.outcome()


class DiesInItsFifthPass:
    """A loss at which rank 1 is killed, once it has written down when."""

    def __init__(self, note: Path) -> None:
        self.note = note
        self.calls = 0

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        self.calls += 1
        if dist.get_rank() == 1 and self.calls == 5:
            self.note.write_text(str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)
        return cross_entropy(model, batch)


def time_of_error(run: Run) -> tuple[float, str]:
    """When the survivor noticed, on the clock that all processes share, and what it said."""
    try:
        Session(run).advance(run.steps)
    except RuntimeError as error:
        return time.monotonic(), str(error)
    return 0.0, "nothing"


@pytest.mark.parametrize("shared_memory", [True, False])
def test_the_death_of_a_rank_is_noticed_within_a_second(
    tmp_path: Path, shared_memory: bool
) -> None:
    note = tmp_path / "died"
    distribute = {"shared_memory": shared_memory}
    run = Run(loss=DiesInItsFifthPass(note), steps=10, distribute=distribute)
    survivor, _ = collect_ranks(2, time_of_error, run)
    noticed, message = survivor
    assert message.startswith("rank 0 (branch 0, data 0), step 4: lost the other ranks")
    assert noticed - float(note.read_text()) < 1.0
