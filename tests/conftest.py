"""Settings for every test: one thread, because the number of threads changes the bits of a sum."""

import gc
import os
import signal
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
# Compile in the test's own process: torch's pool of compiling processes can hang on a busy machine.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

# `make test` draws few examples, `make test-slow` (--hypothesis-profile slow) more of them.
# No deadline: a busy machine is slow, and that is no fault of the code.
settings.register_profile("quick", max_examples=25, deadline=None)
settings.register_profile("slow", max_examples=50, deadline=None)
settings.load_profile("quick")

# A shell lets its background jobs ignore Ctrl-C, and processes that tests start would do the same.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Many quick tests. Everything else starts processes or trains.
QUICK = ("unit", "golden", "reference")


# What is loaded here stays: to look through it again and again for garbage takes seconds.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


# Coverage makes a command a third slower. In `make test-slow`, which sets the variable, those that
# these files start are not measured: what they run is measured elsewhere.
STARTERS = {
    *("test_children", "test_commands", "test_committed", "test_ctrl_c", "test_divergence"),
    *("test_examples", "test_kill", "test_own", "test_peers", "test_signals", "test_sigterm"),
    *("test_step_times", "test_torchrun", "test_tutorial"),
}


@pytest.fixture(scope="module", autouse=True)
def unmeasured_commands(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("COVER") == "slow" and request.path.stem in STARTERS:
            from tests.ranks import start_server

            start_server()  # first: ranks of other files, which are measured, come from it too
            patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long first: one that starts last keeps the other processes waiting."""
    items.sort(key=lambda item: item.path.parent.name in QUICK)
