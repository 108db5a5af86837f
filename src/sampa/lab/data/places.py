"""Where data sets and caches are, and what to say when one is missing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

DATA_DIR = "SAMPA_DATA_DIR"


def data_folder(data_dir: str | Path | None) -> Path:
    """The folder with data sets: the argument, or else the environment's SAMPA_DATA_DIR.

    Raises:
        FileNotFoundError: If neither names a folder.
    """
    chosen = data_dir if data_dir is not None else os.environ.get(DATA_DIR)
    if not chosen:
        raise FileNotFoundError(
            f"no data folder is known; name it with --data-dir or the environment's {DATA_DIR}"
        )
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"the data folder {folder} does not exist; name another with --data-dir or {DATA_DIR}"
        )
    return folder


def first_of(places: Sequence[Path], what: str, source: str) -> Path:
    """The first of these files or folders that exists.

    Raises:
        FileNotFoundError: See `missing`.
    """
    found = next((path for path in places if path.exists()), None)
    if found is None:
        raise missing(what, places, source)
    return found


def missing(what: str, looked_for: Iterable[Path], source: str) -> FileNotFoundError:
    """The error for a data set that is missing.

    Args:
        what: The data set.
        looked_for: Every file that would have done.
        source: Where people get it.
    """
    places = "\n".join(f"  {path}" for path in looked_for)
    return FileNotFoundError(
        f"{what} was not found; looked for\n{places}\nGet {source}, and name its folder with "
        f"--data-dir or the environment's {DATA_DIR}"
    )


def cache_folder(cache_dir: str | Path | None) -> Path:
    """The folder for decoded data: the argument, or else sampa's in the user's cache."""
    if cache_dir is not None:
        return Path(cache_dir).expanduser()
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return (base if base.is_absolute() else Path.home() / ".cache") / "sampa"
