"""A browser for the tests of a module, and its page: the module says which with `address`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from tests.lab.report.browsing import started  # where playwright is missing, only these skip

    with started() as browser:
        yield browser


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page of all recorded experiments."""
    from tests.lab.report.recorded import write_page

    return write_page(tmp_path_factory.mktemp("recorded")).as_uri()


@pytest.fixture(scope="module")
def tab(browser: Any) -> Any:
    """What the pages of a module's tests are opened in, one after the other."""
    tab = browser.new_page()
    tab.set_default_timeout(10_000)
    return tab


@pytest.fixture
def page(tab: Any, address: str) -> Iterator[Any]:
    from tests.lab.report.browsing import opened

    with opened(tab, address) as page:
        yield page
