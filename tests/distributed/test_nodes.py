"""Two machines: network namespaces, joined by a link of a bounded rate."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.scripts.large_gradient import SIDE
from tests.distributed.test_torchrun import SCRIPT, load
from tests.distributed.training import differences
from tests.lab.training.runs import outcome
from tests.unmeasured import unmeasured
from tools.slow_link import ADDRESSES, ENDS, NAMESPACES, close_link, open_link

LARGE_GRADIENT = str(Path(__file__).parent / "scripts" / "large_gradient.py")
PATIENCE = 200
LAST = 60  # batches, in three epochs
RUN = ["-m", "sampa", "train", "digits-cpu", "--epochs", "3", "--resume"]


def may_have_namespaces() -> bool:
    """Tried without a name: every process that collects tests asks at the same time."""
    has_tools = all(map(shutil.which, ("ip", "tc", "unshare")))
    return has_tools and not subprocess.run(["unshare", "-n", "true"], check=False).returncode


pytestmark = [
    pytest.mark.slow,
    pytest.mark.dist,
    pytest.mark.skipif(
        not may_have_namespaces(), reason="needs root and iproute2 to make network namespaces"
    ),
]


@pytest.fixture
def link() -> Iterator[None]:
    close_link()
    open_link("100mbit")
    yield
    close_link()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What one process makes of the run."""
    out = tmp_path_factory.mktemp("whole") / "run"
    subprocess.run([sys.executable, *RUN, "--out", str(out)], check=True, capture_output=True)
    return outcome(out, LAST)


def start(node: int, launcher: list[str], *program: str, **variables: str) -> subprocess.Popen[str]:
    """`torchrun` in a namespace, with its interface chosen unless `variables` say otherwise."""
    command = ["ip", "netns", "exec", NAMESPACES[node], sys.executable, "-m"]
    command += ["torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", *launcher]
    environment = unmeasured() | (variables or {"GLOO_SOCKET_IFNAME": ENDS[node]})
    return subprocess.Popen(
        [*command, *program],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ends(process: subprocess.Popen[str]) -> tuple[int, str]:
    try:
        text, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
    return process.returncode, text


def meeting(node: int) -> list[str]:
    return ["--node-rank", str(node), "--master-addr", ADDRESSES[0], "--master-port", "29533"]


def on_both(*programs: tuple[str, ...], **variables: str) -> list[tuple[int, str]]:
    """What becomes of one program on each machine, for which all is known beforehand."""
    nodes = [start(n, meeting(n), *program, **variables) for n, program in enumerate(programs)]
    return [ends(node) for node in nodes]


def train(folders: list[Path], *arguments: str, **variables: str) -> list[tuple[int, str]]:
    return on_both(*((*RUN, "--out", str(out), *arguments) for out in folders), **variables)


def require_done(ended: list[tuple[int, str]]) -> None:
    assert [code for code, _ in ended] == [0, 0], ended


@pytest.mark.usefixtures("link")
def test_gradients_travel_in_both_directions_at_once(tmp_path: Path) -> None:
    require_done(on_both(*[(LARGE_GRADIENT, str(tmp_path / "took"))] * 2))
    wire = 8e3 * 4 * (SIDE + 1) * SIDE / 100e6  # milliseconds, one way
    assert 0.9 * wire < float((tmp_path / "took.0").read_text()) < 1.8 * wire


@pytest.mark.usefixtures("link")
def test_a_script_on_two_machines_ends_in_the_bits_of_plain_python(tmp_path: Path) -> None:
    require_done(on_both(*[(SCRIPT, str(tmp_path / "machine"))] * 2))
    subprocess.run([sys.executable, SCRIPT, str(tmp_path / "alone")], check=True)
    expected = load(tmp_path / "alone.0")
    for rank in range(2):
        assert differences(load(tmp_path / f"machine.{rank}"), expected) == []


@pytest.mark.usefixtures("link")
def test_two_machines_with_one_folder_end_in_the_bits_of_one_process(
    tmp_path: Path, whole: Any
) -> None:
    require_done(train([tmp_path / "run"] * 2))
    assert outcome(tmp_path / "run", LAST) == whole


@pytest.mark.usefixtures("link")
def test_a_folder_for_each_machine_will_do_and_the_first_one_has_the_run(
    tmp_path: Path, whole: Any
) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    require_done(train(folders, "--limit-steps", "30"))
    require_done(train(folders))
    assert outcome(folders[0], LAST) == whole
    assert not (folders[1] / "checkpoints").exists()


@pytest.mark.usefixtures("link")
def test_a_host_name_that_means_the_machine_itself_is_told_before_ranks_look_for_each_other(
    tmp_path: Path,
) -> None:
    for code, text in train([tmp_path] * 2, LANG="C"):
        assert code == 1
        assert "set GLOO_SOCKET_IFNAME to the interface that joins the machines" in text


@pytest.mark.usefixtures("link")
def test_a_sharded_run_refuses_a_folder_for_each_machine_before_it_trains(tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for code, text in train(folders, "--shard"):
        assert code == 1
        assert "--out must be one folder that all processes of a sharded run see" in text
        assert "epoch 1" not in text


def elastic(node: int, out: Path) -> subprocess.Popen[str]:
    """The command of docs/training.md for machines that come back."""
    launcher = ["--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-id", "digits"]
    launcher += ["--rdzv-endpoint", f"{ADDRESSES[0]}:29534", "--local-addr", ADDRESSES[node]]
    launcher += ["--rdzv-conf", f"is_host={int(node == 0)}"]
    program = [*RUN, "--out", str(out), "--save-every", "10"]
    variables = {"GLOO_SOCKET_IFNAME": ENDS[node], "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return start(node, launcher, *program, **variables)


def lose(node: int) -> None:
    """Kill all that runs on a machine, the launcher and the ranks, at once."""
    listed = ["ip", "netns", "pids", NAMESPACES[node]]
    found = subprocess.run(listed, check=True, capture_output=True, text=True)
    for pid in map(int, found.stdout.split()):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.usefixtures("link")
def test_a_machine_that_is_lost_and_comes_back_changes_no_bit(tmp_path: Path, whole: Any) -> None:
    """The other one keeps its launcher, which starts its ranks again."""
    out, nodes = tmp_path / "run", [elastic(n, tmp_path / "run") for n in range(2)]
    deadline = time.monotonic() + PATIENCE
    while not list(out.glob("checkpoints/step-*")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    lose(1)
    assert ends(nodes[1])[0] == -signal.SIGKILL
    assert not (out / "result.json").exists()
    nodes[1] = elastic(1, out)
    require_done([ends(node) for node in nodes])
    assert outcome(out, LAST) == whole
