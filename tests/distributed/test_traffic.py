"""What travels between ranks, counted in bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import sampa
from sampa.execution.parallel.groups import Traffic
from tests.distributed.training import Run, Session, net_without_noise
from tests.ranks import run_ranks

pytestmark = pytest.mark.dist

WEIGHTS = sum(p.numel() for p in net_without_noise().parameters())
ONE_GRADIENT = 4 * WEIGHTS
HEADER = 8 + 8  # the loss, and the fingerprint of the batch


def traffic_by_step(run: Run) -> list[Traffic]:
    session = Session(run)
    assert isinstance(session.executor, sampa.Parallel)
    counted: list[Traffic] = []
    for _ in range(run.steps):
        session.advance(1)
        counted.append(replace(session.executor.traffic))
        session.executor.traffic.gradient_bytes = session.executor.traffic.header_bytes = 0
        session.executor.traffic.check_bytes = 0
    return counted


RUN = Run(steps=6, net=net_without_noise)


WAYS = [{}, {"shared_memory": False}, {"shared_memory": False, "bucket_mb": 0.001}]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_step_on_two_branches_sends_one_gradient_and_one_header(way: dict[str, Any]) -> None:
    for counted in run_ranks(2, traffic_by_step, replace(RUN, distribute=way)):
        assert [t.gradient_bytes for t in counted[1:]] == [ONE_GRADIENT] * 5
        assert [t.header_bytes for t in counted[1:]] == [HEADER] * 5


ROUNDED = {"shared_memory": False, "exchange_dtype": torch.bfloat16}


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("bucket_mb", [None, 0.001])
def test_rounded_gradients_are_half_the_bytes_and_the_same_on_all_ranks(
    bucket_mb: float | None, accumulate: int
) -> None:
    rounded = {**ROUNDED, "bucket_mb": bucket_mb, "check_every": 1}  # weights, bit for bit
    run = replace(RUN, distribute=rounded, options={"accumulate": accumulate})
    for counted in run_ranks(2, traffic_by_step, run):
        assert [t.gradient_bytes for t in counted[1:]] == [ONE_GRADIENT // 2] * 5


def test_the_first_step_of_sampa_sends_nothing() -> None:
    for counted in run_ranks(2, traffic_by_step, RUN):
        assert counted[0] == Traffic()


def test_accumulation_sends_no_more_than_one_gradient() -> None:
    for counted in run_ranks(2, traffic_by_step, replace(RUN, options={"accumulate": 4})):
        assert [t.gradient_bytes for t in counted[1:]] == [ONE_GRADIENT] * 5


def test_fingerprints_travel_at_the_first_exchange_and_every_so_many() -> None:
    """One for the batch and one for each parameter."""
    run = replace(RUN, distribute={"check_every": 3})
    parameters = len(list(net_without_noise().parameters()))
    for counted in run_ranks(2, traffic_by_step, run):
        fingerprints = 8 * (1 + parameters)
        assert [t.check_bytes for t in counted] == [0, fingerprints, 0, 0, fingerprints, 0]


def test_varying_use_of_parameters_costs_one_byte_each() -> None:
    run = replace(RUN, distribute={"find_unused_parameters": True}, net=net_without_noise)
    parameters = len(list(net_without_noise().parameters()))
    for counted in run_ranks(2, traffic_by_step, run):
        assert [t.header_bytes for t in counted[1:]] == [HEADER + parameters] * 5


def test_sam_on_two_data_ranks_sends_two_gradients_a_step() -> None:
    run = replace(RUN, make=sampa.SAM, distribute={"branches": 1})
    for counted in run_ranks(2, traffic_by_step, run):
        assert [t.gradient_bytes for t in counted] == [2 * ONE_GRADIENT] * 6


def test_two_by_two_ranks_average_in_the_branch_and_gather_across() -> None:
    """2 (n − 1) / n of a gradient for the average over n = 2 data ranks, one for the gather."""
    for counted in run_ranks(4, traffic_by_step, RUN):
        assert [t.gradient_bytes for t in counted] == [ONE_GRADIENT] + [2 * ONE_GRADIENT] * 5
