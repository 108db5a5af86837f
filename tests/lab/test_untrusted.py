"""Commands on folders that hold what no command wrote: a line that says so, and no waiting."""

from __future__ import annotations

import ast
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import sampa.lab
from sampa.lab.cli import main
from sampa.lab.files import parse_json, read_json_lines
from sampa.lab.report.collect import collect
from sampa.lab.terminal import harmless
from tests.lab.oddities import KINDS, odd_file
from tests.lab.report.folders import a_run, write_run

LAB = Path(sampa.lab.__file__).parent
CODES = "\x1b[2J\x9b31m\r\x07\u202e\udcff"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "result.json", "runs.jsonl"])
def test_a_report_lists_what_it_cannot_read_and_goes_on(
    name: str, kind: str, tmp_path: Path
) -> None:
    write_run(tmp_path / "good", a_run())
    write_run(tmp_path / "bad", a_run(seed=1))
    odd_file(tmp_path / "bad" / name, kind)
    found = collect([tmp_path])
    assert len(found.runs) == (2 if name == "runs.jsonl" else 1)
    (left_out,) = found.left_out
    assert "a file is not readable: it must" in left_out.reason
    assert str(tmp_path) not in left_out.reason


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "runs.jsonl", "results.json"])
def test_json_that_is_nested_deeply_does_not_end_a_report(name: str, tmp_path: Path) -> None:
    for levels in (300, 100_000):
        folder = tmp_path / str(levels)
        write_run(folder / "good", a_run())
        write_run(folder / "bad", a_run(seed=1))
        (folder / "bad" / name).write_text("[" * levels + "]" * levels + "\n")
        found = collect([folder])
        assert len(found.runs) == (2 if "runs" in name or "results" in name else 1)
        assert "nested deeper than 100 levels" in found.left_out[0].reason


def test_json_of_a_usual_depth_is_read() -> None:
    text = '{"a":' * 100 + "1" + "}" * 100
    assert parse_json(text) == json.loads(text)
    with pytest.raises(ValueError, match="nested deeper than 100 levels"):
        parse_json(f"[{text}]")


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{}\n{"a"\n')
    with pytest.raises(
        ValueError, match=r"x\.jsonl must be JSON, as sampa wrote it: line 2: Expec"
    ):
        read_json_lines(tmp_path / "x.jsonl")


# ---- eval ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_eval_refuses_what_is_no_file_at_once(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd_file(tmp_path / "run.json", kind)
    assert main(["eval", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "it must" in line
    assert "run.json" in line


class Payload:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("run",)


@pytest.mark.parametrize("command", ["eval", "train"])
def test_a_file_does_not_name_weights_to_be_loaded(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "weights.pt"
    weights.write_bytes(pickle.dumps(Payload()))
    run = a_run().as_json()
    run["model"] = {"name": "resnet20", "options": {"path": str(weights)}}
    (tmp_path / "run.json").write_text(json.dumps({"run": run, "conditions": {}}))
    given = [str(tmp_path if command == "eval" else tmp_path / "run.json")]
    assert main([command, *given]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "a file is not trusted to name others; if you trust them, say where" in line


def test_a_pickle_that_the_user_names_is_refused_in_a_line(tmp_path: Path) -> None:
    from sampa.lab.models import build

    (tmp_path / "weights.pt").write_bytes(pickle.dumps(Payload()))
    with pytest.raises(ValueError, match=r"^path must be a file of tensors alone.*weights\.pt"):
        build("resnet20", path=tmp_path / "weights.pt")


# ---- the terminal ----------------------------------------------------------------------------


def test_control_characters_are_written_out() -> None:
    assert harmless(f"a{CODES}b") == r"a\x1b[2J\x9b31m\r\x07\u202e\udcffb"
    assert harmless("ρ = 0.1 ± 2\n\té") == "ρ = 0.1 ± 2\n\té"


@pytest.mark.parametrize("command", ["eval", "train"])
def test_a_name_in_a_file_does_not_reach_the_terminal_raw(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    run = a_run().as_json() | {f"x{CODES}": 1}
    (folder / "run.json").write_text(json.dumps({"run": run, "conditions": {}}))
    assert main([command, str(folder if command == "eval" else folder / "run.json")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert not set(line) & set(CODES) - set("[2J31m")
    (folder / "run.json").rename(tmp_path / "elsewhere")
    folder.rename(tmp_path / f"x{CODES}")
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "report.html")]) == 2
    assert not set(capsys.readouterr().err) & set(CODES) - set("[2J31m")


def test_an_argument_with_control_characters_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "x\x1b[31m"]) == 2
    assert "an argument must be free of control characters" in capsys.readouterr().err


@pytest.mark.parametrize("file", sorted(LAB.rglob("*.py")), ids=lambda f: str(f.relative_to(LAB)))
def test_nothing_is_printed_or_parsed_past_the_functions_for_it(file: Path) -> None:
    """Relatives of the above cannot come back: one place prints, one reads JSON."""
    calls = [
        ast.unparse(n.func)
        for n in ast.walk(ast.parse(file.read_text()))
        if isinstance(n, ast.Call)
    ]
    own = {"terminal.py": {"print"}, "files.py": {"json.loads"}}.get(file.name, set())
    if file.name == "cache.py":
        own = {"json.loads"}  # of what it has just written itself
    forbidden = {"print", "json.loads", "json.load", "traceback.print_exc"}
    assert not (forbidden - own) & set(calls)
