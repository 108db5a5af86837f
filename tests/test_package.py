"""The package's public names: loaded on first use, and the same in every list of them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import sampa

SOURCE = Path(sampa.__file__)
PYPROJECT = SOURCE.parents[2] / "pyproject.toml"


def names_for_type_checkers() -> dict[str, str]:
    """What is imported below `if TYPE_CHECKING`: each name with its module."""
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    found: dict[str, str] = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        assert node.module is not None
        found |= {alias.name: node.module for alias in node.names}
    return found


def test_names_at_run_time_are_those_that_type_checkers_see() -> None:
    assert names_for_type_checkers() == sampa._MODULES
    assert sorted(sampa.__all__) == sorted(sampa._MODULES)


@pytest.mark.parametrize("name", sampa.__all__)
def test_every_public_name_is_found(name: str) -> None:
    assert getattr(sampa, name) is not None
    assert name in dir(sampa)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'sampa' has no attribute 'SAMM'"):
        sampa.SAMM  # noqa: B018


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, sampa; print(sampa.__version__, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [sampa.__version__, "False"]


def test_the_version_is_written_in_one_place() -> None:
    assert metadata.version("sampa") == sampa.__version__
    if not PYPROJECT.exists():
        pytest.skip("needs a clone of the repository")
    settings = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    assert "version" not in settings["project"]
    assert settings["project"]["dynamic"] == ["version"]
    assert PYPROJECT.parent / settings["tool"]["hatch"]["version"]["path"] == SOURCE
    citation = (PYPROJECT.parent / "CITATION.cff").read_text(encoding="utf-8")
    assert "\nversion:" not in citation


def test_the_changelog_has_a_section_for_this_version() -> None:
    changelog = PYPROJECT.parent / "CHANGELOG.md"
    if not changelog.exists():
        pytest.skip("needs a clone of the repository")
    found = changelog.read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(sampa.__version__)}\] - \d{{4}}-\d\d-\d\d$", found, re.M)
