"""Lines of code in Python files: without blank lines, comments and docstrings.

    python tools/count_lines.py src/sampa

Names each folder below the given ones, the total, and what exceeds the limits of CONTRIBUTING.md:
300 lines a file, 40 a function, 30 a constructor.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

MOST_LINES = {"file": 300, "function": 40, "constructor": 30}
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> set[int]:
    """The numbers of the lines that hold code."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    held = {
        line
        for token in tokens
        if token.type not in _LAYOUT
        for line in range(token.start[0], token.end[0] + 1)
    }
    return held - docstring_lines(ast.parse(source))


def docstring_lines(tree: ast.AST) -> set[int]:
    """The lines of strings that stand alone as a statement."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def too_long(path: Path, source: str) -> list[str]:
    """Files, functions and constructors over their limits, docstrings not counted."""
    tree = ast.parse(source)
    documented = docstring_lines(tree)
    found: list[str] = []
    total = len(source.splitlines()) - len(documented)
    if total > MOST_LINES["file"]:
        found.append(f"{path}: {total} lines")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            kind = "constructor" if node.name == "__init__" else "function"
            span = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            if len(span - documented) > MOST_LINES[kind]:
                found.append(f"{path}:{node.lineno} {node.name}: {len(span - documented)} lines")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Lines of code, and what exceeds the limits.")
    parser.add_argument("folders", nargs="+", type=Path)
    counts: Counter[str] = Counter()
    long: list[str] = []
    for folder in parser.parse_args().folders:
        for path in sorted(folder.rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            counts[str(path.parent)] += len(code_lines(source))
            long += too_long(path, source)
    for folder, lines in sorted(counts.items()):
        print(f"{lines:7,}  {folder}")
    print(f"{counts.total():7,}  in all")
    for line in long:
        print(f"over its limit: {line}")


if __name__ == "__main__":
    main()
