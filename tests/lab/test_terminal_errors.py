"""Errors of several processes, told once."""

from __future__ import annotations

from pathlib import Path

import pytest

from sampa.lab.terminal import SAID, complain


def test_what_all_ranks_have_to_tell_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(SAID, str(tmp_path))
    for _ in range(3):
        complain("no such data")
    complain("another error")
    assert capsys.readouterr().err.splitlines() == ["no such data", "another error"]


@pytest.mark.parametrize("folder", ["", "missing"])
def test_it_is_told_where_no_mark_can_be_left(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(SAID, str(tmp_path / folder) if folder else "")
    complain("no such data")
    complain("no such data")
    assert capsys.readouterr().err == "no such data\nno such data\n"
