"""The loop that SAMPa's host time is compared with does the same as SAMPa."""

from __future__ import annotations

import torch

import sampa
from sampa.lab.bench.host_time import SAMPaByHand, foreach_sgd, host_time
from tests.problems import cross_entropy_of, flat, tiny_mlp, vector_batches


def test_the_loop_by_hand_goes_where_sampa_goes() -> None:
    model, twin = tiny_mlp(), tiny_mlp()
    ours, theirs = sampa.SAMPa(foreach_sgd(model)), SAMPaByHand(foreach_sgd(twin))
    for batch in vector_batches(6):
        ours.step(cross_entropy_of(model), batch)
        theirs.step(cross_entropy_of(twin), batch)
        # Norms are summed in another order; float64, weights of size 1, a few updates.
        torch.testing.assert_close(flat(model), flat(twin), rtol=0, atol=1e-14)


def test_host_times_are_measured() -> None:
    found = host_time(turns=15)  # medians: a busy machine holds up single ones
    assert found.sampa > 0
    assert found.by_hand > 0
