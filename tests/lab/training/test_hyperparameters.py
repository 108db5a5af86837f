"""What is known of methods without torch is what the catalog says."""

from __future__ import annotations

import inspect
import json

import pytest

from sampa.catalog import ALIASES, METHODS, find_method
from sampa.cost import hyperparameters
from sampa.lab.training.hyperparameters import catalog_as_json, known_method, known_methods


def test_the_file_is_as_the_catalog() -> None:
    """If it is not: python -m sampa.lab.training.hyperparameters."""
    known = {name: vars(method) for name, method in known_methods().items()}
    assert known == json.loads(catalog_as_json())
    assert list(known) == list(METHODS)


@pytest.mark.parametrize("name", [*METHODS, *ALIASES, "sampa-0.1", "sampa-1"])
def test_names_mean_the_same_as_in_the_catalog(name: str) -> None:
    found = known_method(name).hyperparameters
    assert found == hyperparameters(find_method(name))
    accepted = set(inspect.signature(find_method(name)).parameters)
    assert set(found) == accepted - {"base", "options"}


@pytest.mark.parametrize("name", ["smapa", "sampa-2", "sampa-x"])
def test_an_unknown_name_is_told_as_the_catalog_tells_it(name: str) -> None:
    with pytest.raises(ValueError, match="method must be a known name") as ours:
        known_method(name)
    with pytest.raises(ValueError, match="method must be a known name") as theirs:
        find_method(name)
    assert str(ours.value) == str(theirs.value)
