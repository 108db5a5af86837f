"""Randomness is a function of the seed, and leaves torch's own stream where it was."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from sampa.execution.randomness import derive_seed, seeded


def test_the_same_key_gives_the_same_seed_in_another_process() -> None:
    code = (
        "from sampa.execution.randomness import derive_seed; print(derive_seed(3, 'probe', 1, 0))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(other.stdout) == derive_seed(3, "probe", 1, 0)


def test_every_part_of_the_key_matters() -> None:
    keys = [(0, "probe", 1, 2), (1, "probe", 1, 2), (0, "batch", 1, 2), (0, "probe", 2, 1)]
    assert len({derive_seed(*key) for key in keys}) == len(keys)


def test_numbers_in_a_key_do_not_run_together() -> None:
    assert derive_seed(1, 12) != derive_seed(11, 2)


def test_a_seed_fits_torchs_generators() -> None:
    for number in range(100):
        torch.Generator().manual_seed(derive_seed(number))


def test_the_same_seed_gives_the_same_numbers() -> None:
    draws = []
    for _ in range(2):
        with seeded(5, [torch.device("cpu")]):
            draws.append(torch.rand(4))
    assert torch.equal(draws[0], draws[1])


def test_other_seeds_give_other_numbers() -> None:
    with seeded(5, []):
        a = torch.rand(4)
    with seeded(6, []):
        b = torch.rand(4)
    assert not torch.equal(a, b)


def test_numbers_are_those_of_torch_manual_seed() -> None:
    with seeded(5, []):
        inside = torch.rand(4)
    assert torch.equal(inside, torch.rand(4, generator=torch.Generator().manual_seed(5)))


def test_torchs_stream_goes_on_as_if_nothing_had_happened() -> None:
    torch.manual_seed(1)
    expected = torch.rand(4)
    torch.manual_seed(1)
    with seeded(5, []):
        torch.rand(100)
    assert torch.equal(torch.rand(4), expected)


def test_torchs_stream_is_put_back_after_an_exception() -> None:
    def fail() -> None:
        with seeded(5, []):
            torch.rand(100)
            raise KeyError

    state = torch.get_rng_state()
    with pytest.raises(KeyError):
        fail()
    assert torch.equal(torch.get_rng_state(), state)
