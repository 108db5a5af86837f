"""Imports point one way, at every level, those inside functions too.

vectors ← loss, batches ← method ← pieces; method ← execution ← optimizer; pieces, optimizer ←
methods ← catalog; everything ← lab, integrations.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import sampa

ROOT = Path(sampa.__file__).parent
LABORATORY = ("sampa.lab", "sampa.__main__")  # what comes with an extra
# What each integration comes with, as an extra.
FRAMEWORKS = {
    "sampa.integrations.accelerate": {"accelerate"},
    "sampa.integrations.lightning": {"lightning"},
    "sampa.integrations.prepared": {"accelerate"},
    "sampa.integrations.transformers": {"transformers"},
}
# Modules of Python's standard library that are not on every system.
POSIX_ONLY = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}
PARALLEL = "sampa.execution.parallel"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(FILES[name].read_text(encoding="utf-8"))


def is_below(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


LIBRARY = [name for name in FILES if not is_below(name, *LABORATORY)]


@cache
def imports(name: str) -> frozenset[str]:
    """Every module that a file names in an import, wherever it stands in the file."""
    found: set[str] = set()
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            assert node.module is not None
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {w if w in FILES else node.module for w in whole}
            found |= whole & {"torch.distributed"}
    return frozenset(found)


def attribute_chains(name: str) -> set[str]:
    """Dotted names as they are used, such as torch.distributed.barrier."""
    return {ast.unparse(node) for node in ast.walk(tree(name)) if isinstance(node, ast.Attribute)}


def in_package(package: str) -> list[str]:
    return [name for name in LIBRARY if name.startswith(package + ".")]


def rooms() -> dict[str, dict[str, set[str]]]:
    """For each package, which of its children (modules and packages) import which others.

    The root loads its names on first use and so may name them all.
    """
    graphs: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in FILES:
        for other in imports(name) & set(FILES) - {name, "sampa"}:
            if name == "sampa":
                continue
            a, b = name.split("."), other.split(".")
            depth = next((i for i, (s, t) in enumerate(zip(a, b, strict=False)) if s != t), None)
            if depth is not None:  # else one is the package of the other
                graphs[".".join(a[:depth])][a[depth]].add(b[depth])
    return graphs


def test_the_walk_finds_library_and_laboratory() -> None:
    assert {"sampa", "sampa.vectors.vector", "sampa.methods.sampa", "sampa.optimizer"} <= {*LIBRARY}
    assert {"sampa.lab.cli", "sampa.lab.training.loop"} <= set(FILES) - set(LIBRARY)


def test_no_rooms_import_each_other_in_a_circle() -> None:
    """Of modules and of packages, at every level of the tree."""
    graphs = rooms()
    assert {"sampa", "sampa.execution", "sampa.lab", "sampa.lab.training"} <= set(graphs)
    for graph in graphs.values():
        TopologicalSorter(graph).prepare()  # raises CycleError, naming the circle


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name: imports(name) & set(FILES) - {"sampa"} for name in FILES if name != "sampa"}
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("name", in_package("sampa.vectors"))
def test_vectors_know_nothing_else_of_sampa(name: str) -> None:
    known = ("sampa.vectors", "sampa.torch_private")
    assert not [m for m in imports(name) if is_below(m, "sampa") and not is_below(m, *known)]


@pytest.mark.parametrize("name", ["sampa.method", *in_package("sampa.pieces")])
def test_pieces_know_vectors_and_what_a_method_is(name: str) -> None:
    below = ("vectors", "pieces", "loss", "batches", "samples", "messages", "method")
    known = [f"sampa.{module}" for module in below]
    assert not [m for m in imports(name) if is_below(m, "sampa") and not is_below(m, *known)]


@pytest.mark.parametrize("name", in_package("sampa.methods"))
def test_methods_know_no_executor_and_no_ranks(name: str) -> None:
    """They import the optimizer, for their factories."""
    forbidden = ("sampa.execution", "sampa.catalog", "torch.distributed")
    assert not [m for m in imports(name) if is_below(m, *forbidden)]


@pytest.mark.parametrize("name", in_package("sampa.execution"))
def test_execution_knows_no_method(name: str) -> None:
    forbidden = ("sampa.methods", "sampa.pieces", "sampa.optimizer", "sampa.catalog")
    assert not [m for m in imports(name) if is_below(m, *forbidden)]


@pytest.mark.parametrize("name", [name for name in LIBRARY if not is_below(name, PARALLEL)])
def test_only_the_parallel_executor_talks_to_other_ranks(name: str) -> None:
    """The executor's interface may name the type of the mesh."""
    allowed = {"torch.distributed.device_mesh"} if name == "sampa.execution.executor" else set()
    found = {m for m in imports(name) if is_below(m, "torch.distributed")}
    found |= {c for c in attribute_chains(name) if is_below(c, "torch.distributed")}
    assert found <= allowed


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_needs_torch_and_numpy_alone(name: str) -> None:
    allowed = {"sampa", "torch", "numpy", *sys.stdlib_module_names, *FRAMEWORKS.get(name, ())}
    assert {m.split(".")[0] for m in imports(name)} <= allowed


@pytest.mark.parametrize("name", [n for n in FILES if not is_below(n, "sampa.integrations")])
def test_only_integrations_know_of_integrations(name: str) -> None:
    """Whoever uses one asks for it, and has its framework."""
    assert not [m for m in imports(name) if is_below(m, "sampa.integrations")]


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_imports_nothing_that_some_system_lacks(name: str) -> None:
    """It is to be imported on Windows and macOS too; `fcntl` and `resource` are for the lab."""
    assert not {m.split(".")[0] for m in imports(name)} & POSIX_ONLY


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_does_not_import_the_laboratory(name: str) -> None:
    assert not [m for m in imports(name) if is_below(m, *LABORATORY)]


def test_importing_the_library_does_not_load_the_compiler() -> None:
    code = "import sys, sampa; sampa.SAMPa; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
