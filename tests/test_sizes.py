"""The sizes that CONTRIBUTING.md sets, and the script that counts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.count_lines import MOST_LINES, too_long

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("folder", ["src", "tools"])
def test_no_file_function_or_constructor_is_over_its_limit(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    assert [line for f in files for line in too_long(f, f.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(("name", "kind"), [("run", "function"), ("__init__", "constructor")])
def test_docstrings_do_not_count(name: str, kind: str) -> None:
    def source(lines: int) -> str:
        body = ["    x = 1"] * (lines - 1)
        return "\n".join([f"def {name}():", '    """One.\n\n    Two.\n    """', *body])

    assert too_long(Path("a.py"), source(MOST_LINES[kind])) == []
    over = MOST_LINES[kind] + 1
    assert too_long(Path("a.py"), source(over)) == [f"a.py:1 {name}: {over} lines"]


def test_a_long_file_is_named() -> None:
    lines = MOST_LINES["file"] + 1
    assert too_long(Path("a.py"), "x = 1\n" * lines) == [f"a.py: {lines} lines"]
