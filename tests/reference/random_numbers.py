"""The hash behind sampa's random numbers, as plain slow code, one number at a time.

Nothing of sampa is used here: numpy's unsigned integers wrap around by themselves.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

Word = np.uint32
WORDS = 2**32
BLOCK = 2**30


def mix(x: Word) -> Word:
    """lowbias32 without its last shift."""
    x ^= x >> Word(16)
    x *= Word(0x7FEB352D)
    x ^= x >> Word(15)
    x *= Word(0x846CA68B)
    return x


def splitmix64(*parts: int) -> int:
    h = np.uint64(0)
    for part in parts:
        h = (h ^ np.uint64(part % 2**64)) + np.uint64(0x9E3779B97F4A7C15)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        h = h ^ (h >> np.uint64(31))
    return int(h)


def bits(key: int, draw: int, place: int) -> int:
    """The 24 upper bits of the hash, as a signed number."""
    with np.errstate(over="ignore"):
        k = splitmix64(key, draw, place // BLOCK)
        x = mix(Word(place % BLOCK) ^ Word(k % WORDS))
        x = mix(x + Word(k // WORDS))
    top = int(x) // 256
    return top - 2**24 if top >= 2**23 else top


def uniform(key: int, place: int, draw: int = 0) -> float:
    return bits(key, draw, place) / 2**24 + 0.5


def normal(key: int, place: int, draw: int = 0) -> float:
    return float(ndtri((bits(key, draw, place) + 0.5) / 2**24 + 0.5))


def number(key: int, index: int = 0) -> float:
    """The number on the host."""
    with np.errstate(over="ignore"):
        return (splitmix64(key, -1, index) // 2**40) / 2**24


def first_places(sizes: list[int]) -> list[int]:
    """Where the parameters begin: each at a multiple of 64."""
    starts, place = [], 0
    for n in sizes:
        starts.append(place)
        place += math.ceil(n / 64) * 64
    return starts
