"""Files of unknown origin, read within limits; and files written whole, never through a link.

All JSON that the laboratory reads is read here.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
from collections.abc import Callable
from io import BufferedReader, FileIO
from pathlib import Path, PurePosixPath
from typing import Any

from sampa.messages import require

LARGEST_FILE = 100_000_000_000  # bytes; a pipe or a device has no end at all
JSON_BYTES = 64_000_000  # the largest of our own has 1 MB
JSON_DEPTH = 100  # lists and objects in each other; ours have 20, and a thousand end in a crash

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def open_file(file: Path, limit: int, *, links: bool = True) -> BufferedReader:
    """An ordinary file, opened to be read.

    Args:
        file: Its name. A pipe or a device, which may never end, is not waited for.
        limit: Bytes that it may have at most.
        links: Whether it may be a symbolic link to an ordinary file.

    Raises:
        OSError: If it is no such file, is larger, or cannot be read; `strerror` is the reason.
    """
    _require_ordinary(file, os.stat(file, follow_symlinks=links))  # a device may act on opening
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    stream = os.fdopen(os.open(file, flags), "rb")
    try:
        _require_ordinary(file, os.fstat(stream.fileno()), limit)
    except OSError:
        stream.close()
        raise
    return stream


def read_file(file: Path, limit: int, *, links: bool = True) -> bytes:
    """The contents of an ordinary file, see `open_file`."""
    with open_file(file, limit, links=links) as stream:
        return stream.read(os.fstat(stream.fileno()).st_size)


def _require_ordinary(file: Path, found: os.stat_result, limit: int | None = None) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise OSError(errno.EINVAL, f"it must be an ordinary file, not {kind}", str(file))
    if limit is not None and found.st_size > limit:
        reason = f"it must have at most {limit:,} bytes, not {found.st_size:,}"
        raise OSError(errno.EFBIG, reason, str(file))


# ---- JSON ------------------------------------------------------------------------------------


def parse_json(content: str | bytes) -> Any:
    """The value of a JSON text that may come from anyone.

    Raises:
        ValueError: If it is no JSON, or is nested too deeply for what looks at it later.
    """
    too_deep = ValueError(f"nested deeper than {JSON_DEPTH} levels")
    try:
        value = json.loads(content if isinstance(content, str) else content.decode("utf-8"))
    except RecursionError as error:
        raise too_deep from error
    level = [value]
    for _ in range(JSON_DEPTH):
        level = [child for node in level for child in _children(node)]
        if not level:
            return value
    raise too_deep


def _children(node: Any) -> list[Any]:
    below = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [child for child in below if isinstance(child, dict | list)]


def read_json(file: Path) -> Any:
    """The value in a JSON file that may come from anyone.

    Raises:
        ValueError: If it is no usable JSON; the cause is the reason without the path.
        OSError: If it cannot be read, see `read_file`.
    """
    content = read_file(file, JSON_BYTES)
    try:
        return parse_json(content)
    except ValueError as error:
        raise ValueError(f"{file} must be JSON, as sampa wrote it: {error}") from error


def read_json_lines(file: Path) -> list[Any]:
    """The values in a file with one JSON text a line.

    Raises:
        ValueError: Naming the line; the cause is the reason without the path.
        OSError: If it cannot be read, see `read_file`.
    """
    values: list[Any] = []
    for number, line in enumerate(read_file(file, JSON_BYTES).splitlines(), start=1):
        try:
            values.append(parse_json(line))
        except ValueError as error:
            cause = ValueError(f"line {number}: {error}")
            raise ValueError(f"{file} must be JSON, as sampa wrote it: {cause}") from cause
    return values


def read_text(file: Path) -> str:
    """The text of a small file that may come from anyone.

    Raises:
        ValueError: If it is no UTF-8.
        OSError: If it cannot be read, see `read_file`.
    """
    return read_file(file, JSON_BYTES).decode("utf-8")


# ---- writing ---------------------------------------------------------------------------------


def replace_file(file: Path, content: bytes, check: Callable[[], None] = lambda: None) -> None:
    """Write a file whole or not at all; a link of its name is replaced, not followed.

    Args:
        file: Its name.
        content: All that will be in it.
        check: Called when all is on the disk, before the file has its name; may raise.

    Raises:
        OSError: If the disk did not take it; the old file is unchanged.
    """
    partial = file.with_name(f".{file.name}.partial")
    remove(partial)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(partial, flags, 0o666), "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        check()
        partial.rename(file)
    except BaseException:
        remove(partial)
        raise


def open_to_write(file: Path, *, append: bool = False) -> FileIO:
    """A file opened to go on writing in it; made if it does not exist, refused if it is a link.

    Nothing is buffered: what `write` did not take is not written later either.

    Raises:
        OSError: If it is not an ordinary file, or cannot be written.
    """
    if os.path.lexists(file):
        _require_ordinary(file, os.lstat(file))
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    flags |= os.O_APPEND if append else 0
    stream = FileIO(os.open(file, flags, 0o666), "ab" if append else "rb+")
    _require_ordinary(file, os.fstat(stream.fileno()))
    return stream


def append_whole(stream: FileIO, content: bytes) -> None:
    """Write at the end of a file, all or nothing.

    Raises:
        OSError: If the disk did not take it; the file is as before.
    """
    size = os.fstat(stream.fileno()).st_size
    try:
        view = memoryview(content)
        while view:
            view = view[stream.write(view) :]
    except OSError:
        os.ftruncate(stream.fileno(), size)  # a part may have been written
        raise


def remove(path: Path) -> None:
    """Remove a file, a link (and not what it points to) or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def place_below(folder: Path, place: str, name: str) -> Path:
    """A path inside a folder, as a file names it; `name` is its name in messages.

    Raises:
        ValueError: If it leads out of the folder.
    """
    path = PurePosixPath(place)
    is_below = not path.is_absolute() and ".." not in path.parts
    require(name, place, is_below, f"a path below {folder}")
    return folder / path


def as_file_name(text: str) -> str:
    """Text as a name that every file system and every link takes."""
    return re.sub(r"[^a-z0-9.+]+", "-", text.lower().replace("×", "x")).strip("-")
