"""`sampa train` on two machines: network namespaces, joined by a link of a bounded rate."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.training.runs import outcome
from tools.slow_link import ADDRESSES, ENDS, NAMESPACES, close_link, open_link

PATIENCE = 120
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


def start(
    node: int, launcher: list[str], *arguments: str, **variables: str
) -> subprocess.Popen[str]:
    """`torchrun` in a namespace; it chooses its interface, unless `variables` say otherwise."""
    command = ["ip", "netns", "exec", NAMESPACES[node], sys.executable, "-m"]
    command += ["torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", *launcher]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}
    environment |= variables or {"GLOO_SOCKET_IFNAME": ENDS[node]}
    return subprocess.Popen(
        [*command, *RUN, *arguments],
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


def train(folders: list[Path], *arguments: str) -> None:
    nodes = [start(n, meeting(n), "--out", str(out), *arguments) for n, out in enumerate(folders)]
    assert [code for code, _ in map(ends, nodes)] == [0, 0]


@pytest.mark.usefixtures("link")
def test_two_machines_with_one_folder_end_in_the_bits_of_one_process(
    tmp_path: Path, whole: Any
) -> None:
    train([tmp_path / "run"] * 2)
    assert outcome(tmp_path / "run", LAST) == whole


@pytest.mark.usefixtures("link")
def test_a_folder_for_each_machine_will_do_and_the_first_one_has_the_run(
    tmp_path: Path, whole: Any
) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    train(folders, "--limit-steps", "30")
    train(folders)
    assert outcome(folders[0], LAST) == whole
    assert not (folders[1] / "checkpoints").exists()


@pytest.mark.usefixtures("link")
def test_a_host_name_that_means_the_machine_itself_is_told_before_ranks_look_for_each_other(
    tmp_path: Path,
) -> None:
    nodes = [start(n, meeting(n), "--out", str(tmp_path), LANG="C") for n in range(2)]
    for code, text in map(ends, nodes):
        assert code == 1
        assert "set GLOO_SOCKET_IFNAME to the interface that joins the machines" in text
