"""Things in place of a file that a careless reader would wait for, follow, or have no room for."""

from __future__ import annotations

import os
from pathlib import Path

from sampa.lab.files import remove

KINDS = ("pipe", "link", "folder", "terabyte")


def odd_file(file: Path, kind: str) -> None:
    """Put a pipe, a link to a device, a folder or a terabyte in the place of a file."""
    remove(file)
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "link":
        file.symlink_to("/dev/zero")
    elif kind == "folder":
        file.mkdir()
    else:
        with file.open("wb") as stream:
            stream.truncate(10**12)  # a hole: it takes no room on the disk
