"""Processes that end with the one that started them, however that one ended.

A process that is killed with -9 cannot tell its children. So they look after themselves: Linux
sends them SIGTERM when their parent dies, and on every system a thread watches the parent. It works
along a chain: a command, the launchers it started, their ranks.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

PARENT = "SAMPA_PARENT"  # in the environment of a process: the one that started it
GRACE = 30.0  # seconds to save in; torch's launcher gives its ranks as many
_PR_SET_PDEATHSIG = 1  # of Linux's prctl

_followed: list[int] = []  # the process that this one ends with


def of_this_process(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child that calls `follow_parent`."""
    return {**environment, PARENT: str(os.getpid())}


@contextmanager
def children_follow() -> Iterator[None]:
    """Have all processes started meanwhile, which inherit the environment, end with this one."""
    os.environ[PARENT] = str(os.getpid())
    try:
        yield
    finally:
        del os.environ[PARENT]


@contextmanager
def without_ctrl_c() -> Iterator[None]:
    """Have processes started meanwhile never see Ctrl-C: this one ends them, and says why.

    The terminal sends it to all of them, and one that is still importing answers with a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def follow_parent(parent: int | None = None) -> None:
    """End with the process that started this one, as it told in the environment; or with `parent`.

    It is asked to stop (SIGTERM), and killed a while later if it cannot: it may be waiting for a
    process that hangs.
    """
    told = os.environ.pop(PARENT, "")  # not for our own children
    parent = int(told) if told.isdecimal() else parent
    if parent is None or parent == os.getpid() or _followed:
        return
    _followed.append(parent)
    # It may be gone already: then the kernel will say nothing, and we have another parent.
    kernel_tells = _ask_kernel() and os.getppid() == parent
    threading.Thread(target=_watch, args=(parent, kernel_tells), daemon=True).start()


def _ask_kernel() -> bool:
    """Have SIGTERM sent when the parent dies; whether the system can."""
    if sys.platform != "linux":
        return False
    return ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) == 0


def _watch(parent: int, kernel_tells: bool) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    if not kernel_tells:  # once: a second signal could break off what the first has begun
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os.kill(os.getpid(), signal.SIGKILL)
