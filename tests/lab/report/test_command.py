"""`sampa report`, run as a user runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sampa.lab.cli import main
from tests.lab.report.folders import a_run, write_grid, write_run


@pytest.mark.parametrize("option", ["-o", "--out"])
def test_the_page_is_written_and_its_size_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    root, out = write_grid(tmp_path / "runs"), tmp_path / "page.html"
    write_run(root / "half", a_run("asam"), finished=False)
    assert main(["report", str(root), option, str(out)]) == 0
    size = out.stat().st_size / 1000
    told = f"{out}: 9 runs, 1 left out (the page says why), {size:.0f} kB\n"
    assert capsys.readouterr().out == told
    assert out.read_text().startswith("<!doctype html>")


def test_several_folders_make_one_page(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_run(tmp_path / name, a_run(name=name))
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "one"), str(tmp_path / "two"), "-o", str(out)]) == 0
    assert "sgd on 2 recipes" in out.read_text()


def test_the_baseline_can_be_chosen(tmp_path: Path) -> None:
    root, out = write_grid(tmp_path / "runs"), tmp_path / "page.html"
    assert main(["report", str(root), "-o", str(out), "--baseline", "sam"]) == 0
    assert "against sam ± 95 %" in out.read_text()


def test_names_that_utf8_cannot_hold_do_not_stop_it(tmp_path: Path) -> None:
    write_run(tmp_path / "run", a_run(about="half a \ud83d letter"))
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "run"), "-o", str(out)]) == 0
    assert "half a &#55357; letter" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["nowhere"], "folders must be existing folders", 2),
        (["."], "no run found below", 2),
        ([], "folders must be one folder or more", 2),
    ],
)
def test_nothing_to_report_is_an_error_without_a_page(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
    code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *arguments]) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_a_missing_package_is_named_with_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needing = ("sampa.lab.report", "sampa.lab.results.html")
    for name in [name for name in sys.modules if name.startswith(needing)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["report", str(tmp_path)]) == 1
    assert "jinja2 is missing; sampa report needs its extra" in capsys.readouterr().err


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["report", "--help"])
    shown = capsys.readouterr().out
    assert "sampa report runs --baseline sam" in shown
    assert "paper.json" in shown
