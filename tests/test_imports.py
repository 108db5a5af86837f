"""Imports point one way.

vectors ← loss, batches ← method ← pieces; method ← execution ← optimizer; pieces, optimizer ←
methods ← catalog; everything ← lab.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import sampa

ROOT = Path(sampa.__file__).parent
# What comes with an extra, and may need more than torch.
EXTRAS = ("sampa.lab", "sampa.__main__")
# Modules of Python's standard library that are not on every system.
POSIX_ONLY = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}
DISTRIBUTED = {
    "sampa.execution.parallel.groups",
    "sampa.execution.parallel.network",
    "sampa.execution.parallel.executor",
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def is_below(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


LIBRARY = [name for name in FILES if not is_below(name, EXTRAS)]


def imports(name: str) -> set[str]:
    """Every module that a file names in an import, wherever it stands in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(FILES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            assert node.module is not None
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {w if w in FILES else node.module for w in whole}
            found |= whole & {"torch.distributed"}
    return found


def attribute_chains(name: str) -> set[str]:
    """Dotted names as they are used, such as torch.distributed.barrier."""
    tree = ast.parse(FILES[name].read_text(encoding="utf-8"))
    return {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def in_package(package: str) -> list[str]:
    return [name for name in LIBRARY if name.startswith(package + ".")]


def test_the_walk_finds_the_library() -> None:
    assert {"sampa", "sampa.vectors.vector", "sampa.methods.sampa", "sampa.optimizer"} <= set(
        LIBRARY
    )


def test_vectors_know_nothing_of_sampa_but_how_they_are_laid_out_and_summed() -> None:
    below = {"sampa.vectors.reductions"}
    assert {m for m in imports("sampa.vectors.vector") if is_below(m, ("sampa",))} == below
    assert not [m for name in below for m in imports(name) if is_below(m, ("sampa",))]


@pytest.mark.parametrize("name", ["sampa.method", *in_package("sampa.pieces")])
def test_pieces_know_vectors_and_what_a_method_is(name: str) -> None:
    below = ("vectors", "pieces", "loss", "batches", "messages", "method")
    known = tuple(f"sampa.{module}" for module in below)
    assert not [m for m in imports(name) if is_below(m, ("sampa",)) and not is_below(m, known)]


@pytest.mark.parametrize("name", in_package("sampa.methods"))
def test_methods_know_no_executor_and_no_ranks(name: str) -> None:
    """Their factories know the optimizer."""
    forbidden = ("sampa.execution", "sampa.catalog", "torch.distributed")
    assert not [m for m in imports(name) if is_below(m, forbidden)]


@pytest.mark.parametrize("name", in_package("sampa.execution"))
def test_execution_knows_no_method(name: str) -> None:
    forbidden = ("sampa.methods", "sampa.pieces", "sampa.optimizer", "sampa.catalog")
    assert not [m for m in imports(name) if is_below(m, forbidden)]


@pytest.mark.parametrize("name", sorted(set(LIBRARY) - DISTRIBUTED))
def test_only_the_parallel_executor_talks_to_other_ranks(name: str) -> None:
    """The executor's interface may name the type of the mesh."""
    allowed = {"torch.distributed.device_mesh"} if name == "sampa.execution.executor" else set()
    found = {m for m in imports(name) if is_below(m, ("torch.distributed",))}
    found |= {c for c in attribute_chains(name) if is_below(c, ("torch.distributed",))}
    assert found <= allowed


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_needs_torch_and_numpy_alone(name: str) -> None:
    allowed = {"sampa", "torch", "numpy", *sys.stdlib_module_names}
    assert {m.split(".")[0] for m in imports(name)} <= allowed


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_imports_nothing_that_some_system_lacks(name: str) -> None:
    """It is to be imported on Windows and macOS too; `fcntl` and `resource` are for the lab."""
    assert not {m.split(".")[0] for m in imports(name)} & POSIX_ONLY


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_does_not_import_the_extras(name: str) -> None:
    assert not [m for m in imports(name) if is_below(m, EXTRAS)]


def test_no_modules_of_the_library_import_each_other_in_a_circle() -> None:
    graph = {name: imports(name) & set(LIBRARY) for name in LIBRARY if name != "sampa"}
    TopologicalSorter(graph).prepare()  # raises CycleError, naming the circle


def test_importing_the_library_does_not_load_the_compiler() -> None:
    code = "import sys, sampa; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
