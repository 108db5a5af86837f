"""The claim of a process on the folder it works in: a lock that is looked at again and again."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sampa.lab.files import open_to_write

LOCK = ".lock"


class FolderReplaced(Exception):
    """The folder of a run is no longer the one that the run began in.

    No OSError: a run outlives a full disk, but must not go on writing into another's folder.
    """

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(
            f"{path} was removed or replaced while this run was working in it ({what}); nothing "
            "more is written there: start this run again with another --out"
        )


@dataclass(frozen=True)
class Owner:
    """The run that checkpoints belong to.

    Attributes:
        id: Its id; a checkpoint with another is refused. Empty if it is not known.
        check: Raises if the folder is no longer that run's; called before anything changes in it.
    """

    id: str = ""
    check: Callable[[], None] = lambda: None


class Claim:
    """The only writer of a folder, until it is closed or the process ends."""

    def __init__(self, path: Path) -> None:
        """Claim a folder.

        Raises:
            OSError: If another process has it, or it cannot be written.
        """
        self._path = path
        self._lock = open_to_write(path / LOCK)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise OSError(
                f"another process is working in {path}; wait for it or choose another --out"
            ) from error
        self.require_held()  # another may have removed the file before it was locked

    def require_held(self) -> None:
        """Compare the file that is locked with the one that is in the folder.

        Raises:
            FolderReplaced: If they are not the same.
        """
        own = os.fstat(self._lock.fileno())
        try:
            found = os.stat(self._path / LOCK, follow_symlinks=False)
        except OSError as error:
            raise FolderReplaced(self._path, f"its {LOCK} is gone") from error
        if (own.st_dev, own.st_ino) != (found.st_dev, found.st_ino):
            raise FolderReplaced(self._path, f"its {LOCK} is another file")

    def close(self) -> None:
        self._lock.close()
