"""Reading untrusted tar and zip files. Nothing is ever unpacked to disk.

Members are read by name into memory, at most as many bytes as they should have. An archive with a
name that leaves its folder, a link or a device is refused as a whole: no data set needs one.
"""

from __future__ import annotations

import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from sampa.lab.files import open_file

LARGEST_ARCHIVE = 4_000_000_000  # bytes of an archive, packed or not; CIFAR has 0.2 billion
DAMAGED = (
    EOFError,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,  # a compression that zipfile does not know
)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what libraries raise about a damaged file into a ValueError that names the file."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise  # the file itself cannot be opened
        raise _damaged(path, error) from error
    except DAMAGED as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> ValueError:
    found = f"{type(error).__name__}: {error}"
    return ValueError(f"{path} is damaged or incomplete ({found}); get it again")


def read_tar(path: Path, wanted: Callable[[str], int | None]) -> dict[str, bytes]:
    """The wanted members of a tar archive (also compressed), by their last name.

    Args:
        path: The archive.
        wanted: From a member's last name to the most bytes it may have; None if it is not wanted.

    Raises:
        ValueError: If the archive is damaged, or holds something it must not.
    """
    found: dict[str, bytes] = {}
    with reading(path), _open(path) as file, tarfile.open(fileobj=file, mode="r:*") as archive:
        for member in archive:
            _require_plain(path, member.name, member.isfile() or member.isdir())
            name = PurePosixPath(member.name).name
            limit = wanted(name) if member.isfile() else None
            if limit is None:
                continue
            _require_new(path, name, found)
            stream = archive.extractfile(member)
            assert stream is not None  # it is a file
            found[name] = _whole(path, member.name, member.size, limit, stream.read)
        _read_to_the_end(path, archive)
    return found


def read_zip(path: Path, wanted: Callable[[str], int | None]) -> dict[str, bytes]:
    """The wanted members of a zip archive, by their full name.

    Args:
        path: The archive.
        wanted: From a member's name to the most bytes it may have; None if it is not wanted.

    Raises:
        ValueError: If the archive is damaged, or holds something it must not.
    """
    found: dict[str, bytes] = {}
    with reading(path), _open(path) as file, zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            _require_plain(path, member.filename, kind in (0, stat.S_IFREG, stat.S_IFDIR))
            limit = wanted(member.filename)
            if limit is None or member.is_dir():
                continue
            _require_new(path, member.filename, found)
            with archive.open(member) as stream:
                size = member.file_size
                found[member.filename] = _whole(path, member.filename, size, limit, stream.read)
    return found


def _open(path: Path) -> BinaryIO:
    return open_file(path, LARGEST_ARCHIVE)


def _read_to_the_end(path: Path, archive: tarfile.TarFile) -> None:
    """Have the decompressor compare its checksum, which comes last."""
    assert archive.fileobj is not None
    while archive.fileobj.read(1 << 20):
        if archive.fileobj.tell() > LARGEST_ARCHIVE:
            most = f"{LARGEST_ARCHIVE:,} bytes"
            raise ValueError(f"{path} is refused: it unpacks to more than {most}")


def _require_plain(path: Path, name: str, plain: bool) -> None:
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in name:
        raise ValueError(f"{path} is refused: its member {name!r} would leave the folder")
    if not plain:
        raise ValueError(f"{path} is refused: its member {name!r} is a link or a device")


def _require_new(path: Path, name: str, found: dict[str, bytes]) -> None:
    if name in found:
        raise ValueError(f"{path} is refused: it has two members {name!r}")


def _whole(path: Path, name: str, size: int, limit: int, read: Callable[[int], bytes]) -> bytes:
    if size > limit:
        raise ValueError(f"{path} is refused: {name!r} has {size} bytes, more than {limit}")
    content = read(size + 1)  # one more, so that a member larger than it declares is noticed
    if len(content) != size:
        raise ValueError(f"{path} is damaged or incomplete: {name!r} ends early; get it again")
    return content
