"""Ways in which files get damaged, by accident or by design."""

from __future__ import annotations

import copy
import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

TRACE = "executed"


class Payload:
    """A pickle that leaves a trace where it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(TRACE),)


TOKENS = (
    *(b"null", b"NaN", b"1e999", b"-1", b"true", b"{}", b"[]", b'""', b"\x00", b"\xff" * 8),
    *(b"../../x", b"/etc/passwd", b"<script>", b"!!python/object/apply:os.system", b"&a [*a, *a]"),
    *(b'{"$dict": [[1]]}', b'{"$tensor": 3}', b'{"$tuple": 1}', b"[" * 5000, b"9" * 5000),
    pickle.dumps(Payload()),
)
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1e308, float("nan"), float("inf"), 10**400, "", "x", "../../x", [], {}),
    *([[]], {"$tensor": "x"}, {"$dict": 1}, {"$dict": [[[], 1]]}, {"$tuple": None}, [1] * 50),
)


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """One to three pieces of damage."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        content = rng.choice(_DAMAGES)(content, rng)
    return content


def _flip(content: bytes, rng: random.Random) -> bytes:
    if not content:
        return content
    damaged = bytearray(content)
    bit = rng.randrange(8 * len(content))
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def _span(content: bytes, rng: random.Random) -> tuple[int, int]:
    begin = rng.randrange(len(content) + 1)
    return begin, min(len(content), begin + rng.choice((1, 2, 8, 64, 1024)))


def _remove(content: bytes, rng: random.Random) -> bytes:
    begin, end = _span(content, rng)
    return content[:begin] + content[end:]


def _repeat(content: bytes, rng: random.Random) -> bytes:
    begin, end = _span(content, rng)
    return content[:end] + content[begin:]


def _clear(content: bytes, rng: random.Random) -> bytes:
    begin, end = _span(content, rng)
    return content[:begin] + bytes(end - begin) + content[end:]


def _insert(content: bytes, rng: random.Random) -> bytes:
    begin, _ = _span(content, rng)
    return content[:begin] + rng.choice(TOKENS) + content[begin:]


def _overwrite(content: bytes, rng: random.Random) -> bytes:
    begin, token = _span(content, rng)[0], rng.choice(TOKENS)
    return content[:begin] + token + content[begin + len(token) :]


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _replace(content: bytes, rng: random.Random) -> bytes:
    return rng.choice(TOKENS)


Damage = Callable[[bytes, random.Random], bytes]
_DAMAGES: tuple[Damage, ...] = (
    *(_flip, _flip, _flip, _flip, _remove, _repeat, _clear, _insert, _overwrite, _cut),
    _replace,
)


def mutate_json(content: bytes, rng: random.Random) -> bytes:
    """The same JSON with a value replaced, removed, added or renamed somewhere."""
    tree = json.loads(content)
    holders = _holders(tree)
    holder = rng.choice(holders)
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    if not keys:
        return mutate_bytes(content, rng)
    key = rng.choice(keys)
    kind = rng.randrange(4)
    if kind == 0:
        holder[key] = copy.deepcopy(rng.choice(VALUES))
    elif kind == 1:
        del holder[key]
    elif isinstance(holder, dict):
        name = f"{key}{rng.choice('sx_')}" if kind == 2 else rng.choice(("", "../x", "$dict", "x"))
        holder[name] = holder.pop(key) if rng.random() < 0.5 else rng.choice(VALUES)
    else:
        holder.insert(key, copy.deepcopy(rng.choice(VALUES)))
    return json.dumps(tree, indent=rng.choice((None, 2))).encode()


def _holders(node: Any) -> list[Any]:
    below = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    inside = [holder for child in below for holder in _holders(child)]
    return [node, *inside] if isinstance(node, dict | list) else inside
