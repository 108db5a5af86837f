"""Notices what code must not do with a file of unknown origin: run it, or write elsewhere."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FORBIDDEN = (
    *("exec", "import", "pickle.find_class", "marshal.loads", "code.__new__"),
    *("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.startfile"),
    *("socket.connect", "socket.bind", "ctypes.dlopen", "shutil.unpack_archive"),
)
CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod")


class Guard:
    """Watches this process through an audit hook, which torch and Python itself cannot avoid."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._inside: str | None = None
        for encoding in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
            codecs.lookup(encoding)  # loads code: JSON may come in any of them
        sys.addaudithook(self._notice)

    @contextmanager
    def allowing(self, folder: Path) -> Iterator[None]:
        """Note whatever runs code, or changes files outside a folder."""
        self._inside = os.path.realpath(folder)
        try:
            yield
        finally:
            self._inside = None

    def _notice(self, event: str, args: tuple[Any, ...]) -> None:
        if self._inside is None:
            return
        if event in FORBIDDEN or event.startswith("os.spawn"):
            self.seen.append(f"{event} {args!r:.200}")
        elif (event == "open" and _writes(args)) or event in CHANGES:
            path = args[1] if event == "os.symlink" else args[0]  # not what it points to
            if not isinstance(path, str | bytes | os.PathLike):
                return
            if not self._is_inside(os.fsdecode(path), follows=event in ("open", "os.chmod")):
                self.seen.append(f"{event} {path!r}")

    def _is_inside(self, path: str, *, follows: bool) -> bool:
        """Whether what is changed is in the folder: a link itself, unless the change follows it."""
        assert self._inside is not None
        folder, name = os.path.split(path)
        real = os.path.realpath(path if follows else folder)
        real = real if follows else os.path.join(real, name)
        return real == self._inside or real.startswith(self._inside + os.sep)


def _writes(args: tuple[Any, ...]) -> bool:
    _, mode, flags = (*args, None, None)[:3]
    by_mode = isinstance(mode, str) and any(letter in mode for letter in "wax+")
    by_flags = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    return by_mode or bool(by_flags)
