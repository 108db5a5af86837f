"""No process outlives the command that started it, whatever ended that one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.dist

FOLLOWER = """
import os, subprocess, sys, time
from sampa.lab.children import follow_parent, of_this_process
follow_parent()
deeper = int(sys.argv[1])
if deeper:
    subprocess.Popen([sys.executable, __file__, str(deeper - 1)], env=of_this_process(os.environ))
print(os.getpid(), flush=True)
time.sleep(60)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_children_and_their_children_end_with_the_first(number: int, tmp_path: Path) -> None:
    script = tmp_path / "follower.py"
    script.write_text(FOLLOWER)
    first = subprocess.Popen([sys.executable, str(script), "2"], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    pids = [int(first.stdout.readline()) for _ in range(3)]
    time.sleep(0.2)  # each has said its number before it is followed
    first.send_signal(number)
    first.wait()
    wait_until(lambda: not any(map(is_alive, pids)), 10, f"{pids} are left")
    first.stdout.close()


def test_a_child_whose_parent_is_gone_already_ends_too(tmp_path: Path) -> None:
    script = tmp_path / "follower.py"
    script.write_text(FOLLOWER)
    environment = {**os.environ, "SAMPA_PARENT": str(2**22 + 1)}  # no process has that number
    code = subprocess.run(
        [sys.executable, str(script), "0"], env=environment, timeout=30
    ).returncode
    assert code == -signal.SIGTERM


def test_the_number_of_the_parent_is_not_handed_on(tmp_path: Path) -> None:
    """Else a process that it starts in its turn would take another for its parent."""
    script = (
        "import os\nfrom sampa.lab.children import *\nfollow_parent()\nprint(PARENT in os.environ)"
    )
    environment = {**os.environ, "SAMPA_PARENT": str(os.getpid())}
    found = subprocess.check_output([sys.executable, "-c", script], env=environment, text=True)
    assert found == "False\n"


# ---- every command that starts processes -----------------------------------------------------

COMMANDS = {
    "train": ["train", "digits-cpu", "--epochs", "500", "--devices", "2", "--out", "run"],
    "compare": ["compare", "digits-cpu", "--devices", "2", "--extra=--epochs 500", "--out", "runs"],
    "bench": ["bench", "--model", "mlp", "--batch-size", "4", "--rounds", "100000"],
    "demo": ["demo", "--out", "demo"],
    "reproduce": ["reproduce", "tab-noise", "--out", "out"],
}
PROCESSES = {"train": 2, "compare": 3, "bench": 2, "demo": 2, "reproduce": 1}


def descendants(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(c) for t in tasks for c in (t / "children").read_text().split()]
    except OSError:
        return []
    return [*children, *(below for child in children for below in descendants(child))]


def busy(pid: int) -> list[int]:
    """The descendants that have loaded torch: not git, nor a helper of multiprocessing."""
    found = []
    for child in descendants(pid):
        try:
            if "libtorch" in Path(f"/proc/{child}/maps").read_text():
                found.append(child)
        except OSError:
            continue
    return found


ENDED = [(name, number) for name in COMMANDS for number in (signal.SIGKILL, signal.SIGTERM)]
ENDED.remove(("compare", signal.SIGTERM))  # tests/lab/training/test_commands.py looks at its runs


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), ENDED)
def test_nothing_outlives_a_command(name: str, number: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sampa", *COMMANDS[name]]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    wait_until(
        lambda: len(busy(process.pid)) >= PROCESSES[name] or process.poll() is not None,
        120,
        (tmp_path / "log").read_text(),
    )
    time.sleep(3)  # until they work: so far they have loaded what they need
    started = descendants(process.pid)
    assert len(started) >= PROCESSES[name], (tmp_path / "log").read_text()
    process.send_signal(number)
    process.wait(timeout=60)
    wait_until(lambda: not any(map(is_alive, started)), 40, f"{started} are left")
