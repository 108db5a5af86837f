"""Bars that fit the terminal, and lines where there is none."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from sampa.lab import progress
from sampa.lab.progress import Bar, clock, columns, short


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_bar_fits_the_terminal(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    numbers = TextColumn("loss 2.13" if width < 70 else "loss 2.13 acc 10.0%")
    bar = Progress(*columns(console, numbers), console=console)
    bar.add_task(short("cifar10-resnet56 sampa seed 0", width), total=70000, completed=69999)
    console.print(bar.get_renderable())
    assert isinstance(console.file, io.StringIO)
    (line,) = console.file.getvalue().splitlines()
    assert len(line) <= width
    assert "69999/70000" in line
    assert "loss 2.13" in line


def test_where_there_is_no_terminal_a_line_comes_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    with Bar("jobs \x1b[2J", 4) as bar:
        bar.advance()
        bar.advance()
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = captured.err.splitlines()
    assert first.startswith("jobs \\x1b[2J: 1 of 4, about 0:00:0")
    assert second.startswith("jobs \\x1b[2J: 2 of 4")


def test_a_clock_has_hours() -> None:
    assert clock(3725.2) == "1:02:05"
