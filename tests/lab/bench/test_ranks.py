"""Processes of a benchmark: where they meet, and that none is waited for when one fails."""

from __future__ import annotations

import socket
import time

import pytest
import torch

from sampa.lab.bench.ranks import free_port, on_ranks
from sampa.lab.bench.workloads import Bench, Workload

pytestmark = pytest.mark.dist
PATIENCE = 120.0  # seconds that a rank would wait


def fail_or_wait(bench: Bench) -> None:
    if bench.rank == 1:
        raise ValueError("rank 1 cannot go on")
    time.sleep(PATIENCE)


@pytest.mark.slow
def test_the_first_failure_ends_the_others_and_is_what_is_raised() -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match="rank 1 cannot go on"):
        on_ranks(fail_or_wait, [torch.device("cpu")] * 2, Workload("mlp", 2))
    assert time.monotonic() - began < PATIENCE


def test_a_port_is_free_and_another_at_each_call() -> None:
    first = free_port()
    with socket.create_server(("", first + 1)):
        second = free_port()
    assert len({first, first + 1, second}) == 3
    socket.create_server(("127.0.0.1", second)).close()


def test_ports_are_below_those_that_linux_gives_to_outgoing_connections() -> None:
    """Between its choice and its use, any of those may be taken by another process."""
    assert {free_port() in range(1024, 32_768) for _ in range(100)} == {True}


def test_a_machine_without_ports_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(OSError, match="a port in"):
        free_port()
