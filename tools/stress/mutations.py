"""Ways in which files get damaged, by accident or by design."""

from __future__ import annotations

import copy
import json
import pickle
import random
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
    *(b'{"$shard": 3}', b'{"$shard": [[], [1], [0]]}', b'{"$shard": ["x", [1e9, 3], [0, 0]]}'),
    *(b"[" * 500 + b"]" * 500, b'{"a":' * 900 + b"1" + b"}" * 900, b"\x1b[2J\r\x9b31m"),
    pickle.dumps(Payload()),
)


def _nested(levels: int) -> Any:
    return [] if levels == 0 else {"deeper": _nested(levels - 1)}


VALUES: tuple[Any, ...] = (
    *(_nested(60), _nested(300), "\x1b[2J", "\udcff", "x" * 100_000),
    *(None, True, -1, 0, 1e308, float("nan"), float("inf"), 10**400, "", "x", "../../x", [], {}),
    *([[]], {"$tensor": "x"}, {"$dict": 1}, {"$dict": [[[], 1]]}, {"$tuple": None}, [1] * 50),
    *({"$shard": None}, {"$shard": ["x", [10**12, 3], [0, 0]]}, {"$shard": [".weight", [5], [0]]}),
)


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """One to three pieces of damage; a flipped bit is the most frequent."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        flips = bool(content) and rng.random() < 0.36
        content = _flipped(content, rng) if flips else rng.choice(_damaged(content, rng))
    return content


def _flipped(content: bytes, rng: random.Random) -> bytes:
    bit = rng.randrange(8 * len(content))
    changed = content[bit // 8] ^ 1 << bit % 8
    return content[: bit // 8] + bytes([changed]) + content[bit // 8 + 1 :]


def _damaged(content: bytes, rng: random.Random) -> tuple[bytes, ...]:
    """What may happen to a span of it, or at its beginning."""
    begin, token = rng.randrange(len(content) + 1), rng.choice(TOKENS)
    end = begin + rng.choice((1, 2, 8, 64, 1024))
    before, span, after = content[:begin], content[begin:end], content[end:]
    return (
        before + after,  # removed
        before + span + span + after,  # repeated
        before + bytes(len(span)) + after,  # cleared
        before + token + span + after,  # inserted
        before + token + content[begin + len(token) :],  # overwritten
        before,  # cut off
        token,  # replaced as a whole
    )


def mutate_json(content: bytes, rng: random.Random) -> bytes:
    """The same JSON with a value replaced, removed, added or renamed somewhere."""
    tree = json.loads(content)
    holder = rng.choice(_holders(tree))
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
