"""docs/tutorial.md does what it says, from top to bottom."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

from tools.site.tutorial import PAGE, Run, carry_out, runs

RUNS = list(runs(PAGE.read_text(encoding="utf-8")))
NUMBER = re.compile(r"\d+\.\d+")


def in_this_process(
    run: Run, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
) -> list[str]:
    """What each command prints. On two processes the page promises the same as in one."""
    printed: list[str] = []
    for command in run.commands:
        if command.startswith("rm "):
            Path(command.removeprefix("rm ")).unlink()
            continue
        patch.setattr(sys, "argv", command[command.index("train.py") :].split())
        exec(compile(run.file, "train.py", "exec"), {"__name__": "__main__"})
        printed.append(capsys.readouterr().out)
    return printed


def assert_alike(printed: str, expected: str) -> None:
    """The same words, and numbers as near as another processor or torch may bring them."""
    assert NUMBER.sub("", printed) == NUMBER.sub("", expected)
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(expected), strict=True)
    assert all(abs(float(a) - float(b)) < 4 for a, b in pairs)  # percent, mostly


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.timeout(600)
def test_every_run_prints_what_the_page_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    printed = [in_this_process(run, capsys, monkeypatch) for run in RUNS]
    torch.set_num_threads(threads)
    for run, lines in zip(RUNS, printed, strict=True):
        assert_alike("".join(lines), run.printed)
    one, two, stopped, recorded = (printed[i][-1] for i in (-4, -3, -2, -1))
    assert one == two == stopped  # a resumed run ends like one that went on
    assert recorded.startswith(one)
    assert RUNS[-3].commands[0].startswith("torchrun")
    assert carry_out(RUNS[-3], tmp_path) == one  # really on two processes
