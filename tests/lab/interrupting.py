"""Commands in processes of their own that are sent Ctrl-C as a terminal sends it."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MARK = "SAMPA_TEST_MARK"  # in the environment of a command and of all that it starts


@dataclass(frozen=True)
class Ended:
    """How a command ended; its code as a shell tells it.

    Python ends itself with SIGINT where the one that it caught came in the midst of an `exec`, as
    many imports have them: to a shell that is 130 too.
    """

    code: int
    out: str
    err: str


def interrupted(
    arguments: list[str], ready: Callable[[], bool], seconds: float = 120, **environment: str
) -> Ended:
    """Start a command, press Ctrl-C when it is ready, and make sure that nothing is left of it."""
    mark = secrets.token_hex(8)
    process = subprocess.Popen(
        [sys.executable, "-m", "sampa", *arguments],
        env={**os.environ, **environment, MARK: mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        end = time.monotonic() + seconds
        while not ready():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end, "it was never ready"
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        end = time.monotonic() + 10
        while left := living(mark):
            assert time.monotonic() < end, left
            time.sleep(0.05)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    code = process.returncode
    return Ended(code if code >= 0 else 128 - code, out, err)


def living(mark: str) -> list[str]:
    """The processes with a mark that have not ended."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # another's, or it has just ended; of a zombie there is nothing to read
            continue
    return found
