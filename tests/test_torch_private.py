"""Private names of torch are used in one module, and the running torch has them all."""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

import sampa
from sampa.torch_private import PRIVATE
from tests.problems import sgd, tiny_mlp

PACKAGE = Path(sampa.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
HOME = PACKAGE / "torch_private.py"
# Private by their spelling, but of Python itself.
OF_PYTHON = {"_getframe", "_exit", "_replace", "_asdict", "_fields"}
# Of frameworks and their files, which the pinned releases' own tests check.
OF_FRAMEWORKS = {
    PACKAGE / "integrations" / "accelerate.py": {"_schedulers"},
    PACKAGE / "integrations" / "prepared.py": {"_step_count"},
    PACKAGE / "integrations" / "transformers.py": {
        "_get_num_items_in_batch",
        "_n_gpu",
        "_prepare_inputs",
        "_train_batch_size",
    },
    PACKAGE / "lab" / "data" / "hugging_face.py": {"_data_files", "_type"},  # keys of JSON
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name.isidentifier()


def names_defined_by(tree: ast.Module) -> Iterator[str]:
    """What a module defines: functions, classes, variables, attributes that it assigns to self."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield from [node.attr] if ast.unparse(node.value) == "self" else []


def private_names_used_by(tree: ast.Module) -> Iterator[str]:
    """Private names that a module imports, takes as an attribute, or mentions in a string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (part for name in node.names for part in name.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            parts = node.value.split(".")
            yield from parts if all(part.isidentifier() for part in parts) else []


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def our_own() -> set[str]:
    return {name for path in MODULES for name in names_defined_by(tree(path))} | OF_PYTHON


def foreign_private_names(path: Path) -> set[str]:
    names = {name for name in private_names_used_by(tree(path)) if is_private(name)}
    return {name for name in names - our_own() if not name.startswith("_foreach_")}


@pytest.mark.parametrize("path", [p for p in MODULES if p != HOME], ids=lambda p: p.stem)
def test_private_names_of_torch_are_used_in_one_module(path: Path) -> None:
    assert foreign_private_names(path) == OF_FRAMEWORKS.get(path, set())


def test_the_module_lists_what_it_uses() -> None:
    listed = {part for name in PRIVATE for part in name.split(".") if is_private(part)}
    assert foreign_private_names(HOME) <= listed


@pytest.mark.parametrize("name", [name for name in PRIVATE if not name.endswith("*")])
def test_the_running_torch_has_the_name(name: str) -> None:
    owner, _, last = name.rpartition(".")
    if owner == "torch.optim.SGD":
        base = sgd(tiny_mlp(), fused=True)
        torch.optim.lr_scheduler.StepLR(base, 1)
        base.step()
        assert hasattr(base, last)
    elif owner == "torch.nn.Module":
        assert hasattr(tiny_mlp(), last)
    elif name in ("torch._dynamo", "torch._inductor.cudagraph_trees"):
        assert importlib.util.find_spec(name) is not None  # loading it would mean that it is used
    else:
        pkgutil.resolve_name(name)


def test_the_running_torch_has_the_operations_on_lists() -> None:
    nodes = [node for path in MODULES for node in ast.walk(tree(path))]
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    used = {name for name in names if name.startswith("_foreach_")}
    assert len(used) > 5
    assert [name for name in sorted(used) if not hasattr(torch, name)] == []
