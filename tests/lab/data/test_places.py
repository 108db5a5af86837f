"""Where data is looked for, and what is said when it is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from sampa.lab.data.places import cache_folder, data_folder, missing


def test_the_argument_comes_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMPA_DATA_DIR", "/elsewhere")
    assert data_folder(tmp_path) == tmp_path


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPA_DATA_DIR", str(tmp_path))
    assert data_folder(None) == tmp_path


def test_without_a_folder_the_error_names_flag_and_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SAMPA_DATA_DIR", raising=False)
    with pytest.raises(FileNotFoundError, match=r"--data-dir.*SAMPA_DATA_DIR"):
        data_folder(None)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent does not exist"):
        data_folder(tmp_path / "absent")


def test_missing_data_names_every_place_and_the_source() -> None:
    text = str(missing("X", [Path("a/x.zip"), Path("b/x.tar")], "the official x.zip"))
    for part in ("a/x.zip", "b/x.tar", "the official x.zip", "--data-dir", "SAMPA_DATA_DIR"):
        assert part in text


def test_the_cache_is_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder(None) == tmp_path / "sampa"


@pytest.mark.parametrize("value", ["", "relative/folder"])
def test_a_cache_that_is_no_absolute_folder_is_not_used(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder(None) == tmp_path / ".cache" / "sampa"
