"""Step times of this commit against those of an earlier one, in turns.

    python tools/step_times.py --starts 6 --turns 16 --json results/bench/steps/against-2ee04d5.json

SAM and SAMPa in one process and in two, ResNet-20 with batches of 8, one thread and one core for a
process. Both commits have processes that wait for their turn (A, B, B, A, ...), so that what else
the machine does falls on both; the result is the median of the paired ratios. The processes are
started several times: where the system puts a process's memory makes it a few percent faster or
slower than another of the same source, for as long as it lives. Needs git, and a commit whose
`sampa.distribute`, `sampa.SAM` and `sampa.SAMPa` are called as today's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HERE = Path(__file__).resolve().parents[1]
WARM_UP = 6
CASES = (("SAM", 1), ("SAMPa", 1), ("SAM", 2), ("SAMPa", 2))
# Freed memory is kept: its return to the system is most of what makes step times vary.
KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}


@dataclass(frozen=True)
class Compared:
    """Times of a step of one method.

    Attributes:
        method: Such as SAMPa.
        processes: As many cores.
        now: Milliseconds, the median over all turns.
        before: The same at the earlier commit.
        ratio: Now over before: the median of the turns' ratios, ...
        low: ... their first quartile ...
        high: ... and their third.
        starts: The median of the ratios of each start of the processes.
    """

    method: str
    processes: int
    now: float
    before: float
    ratio: float
    low: float
    high: float
    starts: list[float]

    def __str__(self) -> str:
        starts = ", ".join(f"{ratio:.3f}" for ratio in self.starts)
        return (
            f"{self.method}, {self.processes} process(es): {self.now:.1f} ms, before "
            f"{self.before:.1f} ms; ratio {self.ratio:.3f} ({self.low:.3f} to {self.high:.3f}); "
            f"by starts: {starts}"
        )


# ---- the process that makes the steps; nothing of the laboratory, which may be elsewhere before


class Block(nn.Module):
    """Two convolutions around which the input goes, as in ResNet-20."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            *(nn.BatchNorm2d(outputs), nn.ReLU()),
            *(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)),
        )
        self.around = nn.Sequential()
        if stride == 2:
            self.around = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.around(x) + self.body(x))


def resnet20() -> nn.Module:
    widths = (16, 16, 16, 16, 32, 32, 32, 64, 64, 64)
    blocks = [Block(*pair) for pair in pairwise(widths)]
    first = (nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def make_steps(method: str, batch_size: int) -> None:
    """Make as many steps as each line of the standard input says, and answer with seconds."""
    import sampa  # the one of PYTHONPATH

    torch.manual_seed(0)
    torch.set_num_threads(1)
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    branches = 2 if method == "SAMPa" else 1
    executor = sampa.distribute(resnet20(), branches=branches if world > 1 else 1)
    base = torch.optim.SGD(executor.model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    optimizer = getattr(sampa, method)(base, executor=executor)
    share = batch_size if branches == world else batch_size // world  # data parallel: a part each
    batch = torch.randn(share, 3, 32, 32), torch.randint(10, (share,))

    def loss_fn(batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(executor.model(batch[0]), batch[1])

    for line in sys.stdin:
        optimizer.step(loss_fn, batch)  # not timed: the other side has used the caches
        start = time.perf_counter()
        for _ in range(int(line)):
            optimizer.step(loss_fn, batch)
        print(time.perf_counter() - start, flush=True)


# ---- the process that gives turns ----------------------------------------------------------------


class Side:
    """The processes of one commit."""

    def __init__(self, source: Path, method: str, processes: int, batch_size: int) -> None:
        from sampa.lab.bench.ranks import free_port

        command = [sys.executable, __file__, "--make-steps", method, "--batch", str(batch_size)]
        shared = {**os.environ, **KEPT_MEMORY, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
        if processes > 1:
            shared |= {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1"}
            shared |= {"MASTER_PORT": str(free_port())}
        self._ranks = [
            subprocess.Popen(
                command,
                env={**shared, **({"RANK": str(r), "LOCAL_RANK": str(r)} if processes > 1 else {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for r in range(processes)
        ]

    def seconds(self, steps: int) -> float:
        """Of one step, on the slowest rank."""
        for rank in self._ranks:
            assert rank.stdin is not None
            rank.stdin.write(f"{steps}\n")
            rank.stdin.flush()
        answers = [rank.stdout.readline() for rank in self._ranks if rank.stdout is not None]
        if not all(answers):
            raise RuntimeError("a process of the comparison has ended; see its message above")
        return max(map(float, answers)) / steps

    def __enter__(self) -> Side:
        try:
            self.seconds(WARM_UP)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self._ranks:
            rank.kill()
            rank.communicate()


def compare(
    sources: Sequence[Path], method: str, processes: int, options: argparse.Namespace
) -> Compared:
    """This commit's source, then that of the other."""
    from sampa.lab.results.summary import quartiles

    starts = [turns_of(sources, method, processes, options) for _ in range(options.starts)]
    times = [turn for turns in starts for turn in turns]
    ratio, *each = (quartiles([now / before for now, before in ts]) for ts in (times, *starts))
    now, before = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
    return Compared(
        *(method, processes, now, before, ratio.median, ratio.low, ratio.high),
        starts=[start.median for start in each],
    )


def turns_of(
    sources: Sequence[Path], method: str, processes: int, options: argparse.Namespace
) -> list[list[float]]:
    """Seconds of a step of each source, turn by turn, by processes that are started for it."""
    times: list[list[float]] = []
    with ExitStack() as stack:
        sides = [
            stack.enter_context(Side(source, method, processes, options.batch))
            for source in sources
        ]
        for turn in range(options.turns):
            order = sides if turn % 2 else sides[::-1]
            found = {side: side.seconds(options.steps) for side in order}
            times.append([found[side] for side in sides])
    return times


@contextmanager
def source_of(commit: str) -> Iterator[Path]:
    """The source of a commit, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", commit, "src"], cwd=HERE, check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder) / "src"


def main() -> None:
    about, *_ = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--against", default="2ee04d5", help="an earlier commit")
    parser.add_argument("--starts", type=int, default=8, help="of the processes")
    parser.add_argument("--turns", type=int, default=24, help="of each start")
    parser.add_argument("--steps", type=int, default=2, help="of each turn")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--json", type=Path, help="write the result here")
    parser.add_argument("--make-steps", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make_steps:
        make_steps(options.make_steps, options.batch)
        return
    from sampa.lab.conditions import Conditions

    with source_of(options.against) as before:
        found: list[Compared] = []
        for method, processes in CASES:
            found.append(compare((HERE / "src", before), method, processes, options))
            print(found[-1], flush=True)
    if options.json:
        about = {
            key: getattr(options, key) for key in ("against", "starts", "turns", "steps", "batch")
        }
        compared = [asdict(one) for one in found]
        values = {**about, "compared": compared, "conditions": Conditions.now().values}
        options.json.write_text(json.dumps(values, indent=2) + "\n")


if __name__ == "__main__":
    main()
