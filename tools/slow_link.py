"""How long a step of SAMPa waits for its exchange over a slow link, for several sizes of buckets.

Two network namespaces on one machine, joined by a pair of virtual interfaces whose rate is bounded
(tc's token bucket). Needs root, iproute2 and Linux:

    python tools/slow_link.py --rates 100mbit 1gbit unshaped --json build/links.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import string
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sampa
from sampa.execution.parallel.network import NetworkExchange
from sampa.execution.parallel.reduced import chosen_bucket_mb
from sampa.lab.conditions import Conditions
from sampa.lab.models import build

NAMESPACES, ADDRESSES = ("sampa-0", "sampa-1"), ("10.231.7.1", "10.231.7.2")
ENDS = ("sampa-v0", "sampa-v1")
PORT = "29517"
UNSHAPED, OWN = "unshaped", "float32"


def open_link(rate: str) -> None:
    """Two namespaces, and between them a link of that rate in both directions, or as it comes."""
    for name in NAMESPACES:
        run("ip", "netns", "add", name)
    run("ip", "link", "add", ENDS[0], "type", "veth", "peer", "name", ENDS[1])
    for name, end, address in zip(NAMESPACES, ENDS, ADDRESSES, strict=True):
        run("ip", "link", "set", end, "netns", name)
        inside = ("ip", "netns", "exec", name)
        run(*inside, "ip", "addr", "add", f"{address}/24", "dev", end)
        run(*inside, "ip", "link", "set", end, "up")
        run(*inside, "ip", "link", "set", "lo", "up")
        if rate != UNSHAPED:
            shape = ("tbf", "rate", rate, "burst", burst_of(rate), "latency", "400ms")
            run(*inside, "tc", "qdisc", "add", "dev", end, "root", *shape)


def burst_of(rate: str) -> str:
    """What may pass at once: 10 ms of the rate.

    The kernel wakes up late, and what a small bucket of tokens had no room for meanwhile is lost:
    the link would carry much less than its rate.
    """
    number = rate.rstrip(string.ascii_letters)
    return f"{float(number) / 100:g}{rate.removeprefix(number)}"


def close_link() -> None:
    """Remove the namespaces, and a link that none of them had got yet."""
    left_over = [("netns", "del", name) for name in NAMESPACES] + [("link", "del", ENDS[0])]
    for what in left_over:
        subprocess.run(["ip", *what], check=False, stderr=subprocess.DEVNULL)


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def start(rank: int, arguments: list[str]) -> subprocess.Popen[str]:
    """This program as one rank, in its namespace."""
    meeting = {"MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": PORT, "WORLD_SIZE": "2"}
    own = {"RANK": str(rank), "LOCAL_RANK": "0", "GLOO_SOCKET_IFNAME": ENDS[rank]}
    command = ["ip", "netns", "exec", NAMESPACES[rank], sys.executable, __file__, *arguments]
    environment = os.environ | meeting | own | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def distributed(model: nn.Module, asked: argparse.Namespace) -> sampa.Parallel:
    """The executor of this rank, with the size of buckets and the dtype that are asked for."""
    (size,), (dtype,) = asked.bucket_mb, asked.exchange_dtype
    executor = sampa.distribute(
        model,
        bucket_mb=None if size == "auto" else float(size),
        shared_memory=False,
        exchange_dtype=None if dtype == OWN else getattr(torch, dtype),
    )
    assert isinstance(executor, sampa.Parallel)
    return executor


def measure(asked: argparse.Namespace) -> None:
    """Make steps on this rank; rank 0 prints the median times as JSON."""
    torch.manual_seed(0)
    model = build(asked.model)
    executor = distributed(model, asked)
    assert isinstance(executor.exchange, NetworkExchange)
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = sampa.SAMPa(base, executor=executor)
    batch = torch.randn(asked.batch_size, 3, 32, 32), torch.randint(10, (asked.batch_size,))
    times: dict[str, list[float]] = {"backward": [], "wait": [], "step": []}
    began, collect = 0.0, executor.exchange.collect

    def loss_fn(batch: tuple[Tensor, Tensor]) -> Tensor:
        nonlocal began
        loss = F.cross_entropy(executor.model(batch[0]), batch[1])
        began = time.perf_counter()
        return loss

    def timed_collect(*args: Any) -> Any:
        start = time.perf_counter()
        times["backward"].append(start - began)
        gradients = collect(*args)
        times["wait"].append(time.perf_counter() - start)
        return gradients

    setattr(executor.exchange, "collect", timed_collect)  # noqa: B010 - the type is a method's
    for _ in range(asked.steps + 2):
        start = time.perf_counter()
        optimizer.step(loss_fn, batch)
        times["step"].append(time.perf_counter() - start)
    if executor.branch == 0:
        found = {name: 1e3 * statistics.median(values[2:]) for name, values in times.items()}
        (size,), (dtype,) = asked.bucket_mb, asked.exchange_dtype
        stated = {
            "bucket_mb": chosen_bucket_mb(model) if size == "auto" else float(size),
            "gradient_bytes": executor.traffic.gradient_bytes // (asked.steps + 1),  # but the first
            "milliseconds": found,
            "rounded_to": None if dtype == OWN else dtype,
        }
        print(json.dumps(stated))


def measured_at(
    rate: str, sizes: list[str], dtypes: list[str], arguments: list[str]
) -> list[dict[str, Any]]:
    """One entry for each dtype and size of buckets."""
    close_link()
    open_link(rate)
    found: list[dict[str, Any]] = []
    try:
        for dtype, size in itertools.product(dtypes, sizes):
            own = [*arguments, "--bucket-mb", size, "--exchange-dtype", dtype]
            ranks = [start(rank, own) for rank in range(2)]
            texts = [rank.communicate()[0] for rank in ranks]
            if any(rank.returncode for rank in ranks):
                sys.exit("a rank failed")
            found.append({"rate": rate, "chosen": size == "auto", **json.loads("".join(texts))})
            print(found[-1], flush=True)
    finally:
        close_link()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="resnet56")
    parser.add_argument("--batch-size", type=int, default=8)
    rates = ["100mbit", "1gbit", UNSHAPED]
    parser.add_argument("--rates", nargs="+", default=rates, help="as tc writes them")
    parser.add_argument("--bucket-mb", nargs="+", default=["25", "1", "auto", "0.25"])
    known = [OWN, "bfloat16", "float16"]
    parser.add_argument("--exchange-dtype", nargs="+", default=[OWN], choices=known)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write what was found to this file")
    parsed = parser.parse_args()
    if "RANK" in os.environ:
        measure(parsed)
        return
    own = ["--model", parsed.model, "--batch-size", str(parsed.batch_size)]
    own += ["--steps", str(parsed.steps)]
    asked = parsed.bucket_mb, parsed.exchange_dtype, own
    links = [link for rate in parsed.rates for link in measured_at(rate, *asked)]
    if parsed.json is not None:
        problem = {"model": parsed.model, "batch_size": parsed.batch_size, "steps": parsed.steps}
        stated = {"conditions": {**Conditions.now().values, "problem": problem}, "links": links}
        parsed.json.parent.mkdir(parents=True, exist_ok=True)
        parsed.json.write_text(json.dumps(stated, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
