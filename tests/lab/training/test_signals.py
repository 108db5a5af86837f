"""Ctrl-C and SIGTERM save and say how to go on; what is then resumed is as if nothing happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sampa.lab.children import PARENT, follow_parent
from sampa.lab.cli import main
from tests.lab.training.processes import run_ranks
from tests.lab.training.runs import Outcome, carry_out, outcome, tiny_run
from tests.ranks import collect_ranks
from tests.sockets import LOOPBACK, listening

pytestmark = pytest.mark.dist

EPOCHS = 3
BATCHES = 20  # in an epoch of digits-cpu
AFTER_AN_EPOCH = "times.jsonl"  # exists then; the file of metrics has its header from the beginning


started: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Iterator[None]:
    """End what a test that failed has started."""
    yield
    while started:
        process = started.pop()
        process.terminate()
        process.communicate(timeout=60)


def command(out: Path, *options: str) -> list[str]:
    recipe = ["digits-cpu", "--epochs", str(EPOCHS), "--threads", "1"]
    return ["train", *recipe, "--out", str(out), *options]


def start(out: Path, *options: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "sampa", *command(out, *options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    started.append(process)
    return process


def wait_for(path: Path, process: subprocess.Popen[str], timeout: float = 120) -> None:
    end = time.monotonic() + timeout
    while not path.exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, f"{path} did not appear within {timeout} s"
        time.sleep(0.01)


def ranks_of(launcher: subprocess.Popen[str]) -> list[int]:
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    return [int(child) for child in children]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """What three epochs of the digits come to in one process, uninterrupted."""
    from sampa.lab.training.recipes import find_recipe

    out = tmp_path_factory.mktemp("whole") / "run"
    carry_out(find_recipe("digits-cpu").changed(epochs=EPOCHS, base_epochs=EPOCHS), out)
    return outcome(out, EPOCHS * BATCHES)


def finish(out: Path, devices: int = 1) -> Outcome:
    """Resume, and see what comes out; on one device in this process, which is soon done."""
    if devices == 1:
        assert main(command(out, "--resume")) == 0
    else:
        process = start(out, "--resume", "--devices", str(devices))
        text, _ = process.communicate(timeout=180)
        assert process.returncode == 0, text
    return outcome(out, EPOCHS * BATCHES)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands set the number of threads, here of the tests' own process."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_gives_its_exit_code(
    number: int, tmp_path: Path, uninterrupted: Outcome
) -> None:
    stop = {"kill": (0,), "at": "batch 4", "with_signal": number}
    assert run_ranks(tiny_run(), tmp_path / "run", **stop) == [128 + number]
    assert (tmp_path / "run" / "checkpoints" / "step-000000005").exists()
    carry_out(tiny_run(), tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == uninterrupted


def test_an_interrupted_command_says_how_to_go_on(tmp_path: Path) -> None:
    process = start(tmp_path / "run")
    wait_for(tmp_path / "run" / AFTER_AN_EPOCH, process)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    *_, last = text.splitlines()
    assert last.startswith("stopped at batch ")
    assert last.endswith("Go on with the same command and --resume.")


@pytest.mark.slow
def test_a_killed_command_goes_on_bit_for_bit(tmp_path: Path, whole: Outcome) -> None:
    process = start(tmp_path / "run", "--save-every", "3")
    wait_for(tmp_path / "run" / "checkpoints" / "step-000000027", process)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert finish(tmp_path / "run") == whole


@pytest.mark.slow
def test_ctrl_c_on_two_devices_saves_once_and_goes_on_bit_for_bit(
    tmp_path: Path, whole: Outcome
) -> None:
    process = start(tmp_path / "run", "--devices", "2")
    wait_for(tmp_path / "run" / AFTER_AN_EPOCH, process)
    addresses = {a for pid in (process.pid, *ranks_of(process)) for a in listening(pid)}
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    assert addresses == {LOOPBACK}
    assert process.returncode == 130, text
    lines = text.splitlines()
    assert all(line.startswith(("epoch ", "stopped at batch ")) for line in lines), text
    assert [line for line in lines if line.startswith("stopped")] == lines[-1:]
    assert finish(tmp_path / "run", devices=2) == whole


# ---- the same on more ranks, which takes longer ----------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("rank", [None, 0])
def test_sigterm_to_the_launcher_or_a_rank_stops_all(
    rank: int | None, tmp_path: Path, whole: Outcome
) -> None:
    process = start(tmp_path / "run", "--devices", "2")
    wait_for(tmp_path / "run" / AFTER_AN_EPOCH, process)
    pid = process.pid if rank is None else ranks_of(process)[rank]
    os.kill(pid, signal.SIGTERM)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 143, text
    assert text.splitlines()[-1].startswith("stopped at batch ")
    assert finish(tmp_path / "run") == whole


@pytest.mark.slow
@pytest.mark.parametrize("killed", [(0,), (1,)])
def test_killed_ranks_end_the_launcher_and_the_run_goes_on(
    killed: tuple[int, ...], tmp_path: Path, whole: Outcome
) -> None:
    process = start(tmp_path / "run", "--devices", "2", "--save-every", "7")
    wait_for(tmp_path / "run" / "checkpoints" / "step-000000028", process)
    pids = ranks_of(process)
    for rank in killed:
        os.kill(pids[rank], signal.SIGKILL)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 137, text
    assert "was killed by signal 9; the same command with --resume goes on" in text
    assert finish(tmp_path / "run") == whole


@pytest.mark.slow
def test_no_rank_outlives_a_killed_launcher(tmp_path: Path, whole: Outcome) -> None:
    process = start(tmp_path / "run", "--devices", "2")
    wait_for(tmp_path / "run" / AFTER_AN_EPOCH, process)
    pids = ranks_of(process)
    process.kill()
    process.communicate(timeout=60)  # until the ranks, too, let go of the output
    end = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert finish(tmp_path / "run") == whole


@pytest.mark.slow
def test_a_killed_rank_is_started_again_if_that_was_asked_for(
    tmp_path: Path, whole: Outcome
) -> None:
    options = ("--devices", "2", "--save-every", "7", "--max-restarts", "1")
    process = start(tmp_path / "run", *options)
    wait_for(tmp_path / "run" / "checkpoints" / "step-000000028", process)
    os.kill(ranks_of(process)[1], signal.SIGKILL)
    text, _ = process.communicate(timeout=180)
    assert process.returncode == 0, text
    assert outcome(tmp_path / "run", EPOCHS * BATCHES) == whole


@pytest.mark.slow
def test_a_run_joins_the_ranks_of_torchrun(tmp_path: Path, whole: Outcome) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    command = ["-m", "sampa", "train", "digits-cpu", "--epochs", str(EPOCHS)]
    subprocess.run(
        [*torchrun, *command, "--out", str(tmp_path / "run")], check=True, capture_output=True
    )
    assert outcome(tmp_path / "run", EPOCHS * BATCHES) == whole


# ---- without the launcher --------------------------------------------------------------------


def wait_for_the_launcher() -> None:
    os.environ[PARENT] = str(2**22 + 1)  # a process that cannot be: it ended before we began
    follow_parent()
    time.sleep(60)


def test_a_rank_whose_launcher_died_before_it_began_ends_as_well() -> None:
    start = time.monotonic()
    assert collect_ranks(1, wait_for_the_launcher) == ["died without a word"]
    assert time.monotonic() - start < 30
