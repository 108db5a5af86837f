"""Freed memory that is kept: measured by the page faults of using it again."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, torch
from sampa.lab.heap import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def use_memory():
    for _ in range(10):
        first, second = torch.ones(40 << 18), torch.ones(40 << 18)  # 40 MB: glibc gives it back
        del first, second

def faults_of_a_repeat():
    use_memory()
    before = faults()
    use_memory()
    return (faults() - before) // 10

given_back = faults_of_a_repeat()
if not keep_freed_memory():
    sys.exit(3)
print(given_back, faults_of_a_repeat())
"""


@pytest.mark.slow
def test_memory_that_is_kept_is_used_again_without_page_faults() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    if done.returncode == 3:
        pytest.skip("this C library has no mallopt")
    assert done.returncode == 0, done.stderr
    given_back, kept = map(int, done.stdout.split())
    assert given_back > 1000
    assert kept < 100
