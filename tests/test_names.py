"""One name, one meaning: what a module defines at its top level is defined nowhere else."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.test_imports import FILES, tree

# What each module has for itself by convention, and whoever calls it names the module too.
PROTOCOLS = {
    "main": "what a command does, and what `python -m` runs",
    "__all__": "what a package offers",
}


def defined(tree: ast.Module) -> Iterator[str]:
    """Names of classes, functions, constants and types, but for type variables and private ones."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            value = node.value
            if isinstance(value, ast.Call) and ast.unparse(value.func) == "TypeVar":
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (name for target in targets for name in ast.walk(target))
            yield from (name.id for name in names if isinstance(name, ast.Name))


def homes(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """The modules that define a name at their top level, for each that is not private."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, parsed in trees.items():
        for name in defined(parsed):
            if not name.startswith("_") or name == "__all__":
                found[name].add(module)
    return found


def test_a_name_is_defined_in_one_module() -> None:
    found = homes({module: tree(module) for module in FILES})
    several = {name: where for name, where in found.items() if len(where) > 1}
    assert {name: where for name, where in several.items() if name not in PROTOCOLS} == {}
    assert set(several) == set(PROTOCOLS), "a protocol that no longer is one"


def test_names_are_found_wherever_they_are_bound() -> None:
    text = "A, (B, c) = 1, (2, 3)\nD: int = 4\nclass E: f = 5\ndef g(): h = 6\n_i = 7\n"
    both = {"one": ast.parse(text), "two": ast.parse("T = TypeVar('T')\nB = 8\n")}
    assert set(homes(both)) == {"A", "B", "c", "D", "E", "g"}
    assert homes(both)["B"] == {"one", "two"}
