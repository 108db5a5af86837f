"""Archives that would do harm are refused, damaged ones are named, nothing is unpacked."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sampa.lab.data.archives import read_tar, read_zip
from tests.lab.data.makers import special, write_tar

GOOD = {"folder/a.bin": b"aaaa", "folder/b.bin": b"bb", "other.txt": b"x"}


def at_most(limit: int) -> Callable[[str], int | None]:
    return lambda name: limit if name.endswith(".bin") else None


def write_zip(path: Path, *entries: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return path


def test_wanted_members_of_a_tar_are_read(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar.gz", GOOD)
    assert read_tar(path, at_most(4)) == {"a.bin": b"aaaa", "b.bin": b"bb"}


def test_wanted_members_of_a_zip_are_read(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", *GOOD.items())
    assert read_zip(path, at_most(4)) == {"folder/a.bin": b"aaaa", "folder/b.bin": b"bb"}


@pytest.mark.parametrize("name", ["../x.bin", "/x.bin", "a/../../x.bin", "..\\x.bin", "C:\\x.bin"])
def test_a_tar_whose_member_leaves_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "evil.tar.gz", {**GOOD, name: b"x"})
    with pytest.raises(ValueError, match=r"evil\.tar\.gz is refused.*leave the folder"):
        read_tar(path, at_most(4))


@pytest.mark.parametrize("name", ["../x.bin", "/x.bin", "a/../../x.bin", "C:/x.bin"])
def test_a_zip_whose_member_leaves_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    path = write_zip(tmp_path / "evil.zip", *GOOD.items(), (name, b"x"))
    with pytest.raises(ValueError, match=r"evil\.zip is refused.*leave the folder"):
        read_zip(path, at_most(4))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_a_tar_with_a_link_or_a_device_is_refused(kind: bytes, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "evil.tar.gz", GOOD, special("c.bin", kind, "/etc/passwd"))
    with pytest.raises(ValueError, match=r"evil\.tar\.gz is refused.*link or a device"):
        read_tar(path, at_most(4))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO])
def test_a_zip_with_a_link_or_a_device_is_refused(kind: int, tmp_path: Path) -> None:
    info = zipfile.ZipInfo("c.bin")
    info.external_attr = (kind | 0o644) << 16
    path = write_zip(tmp_path / "evil.zip", (info, b"/etc/passwd"))
    with pytest.raises(ValueError, match=r"evil\.zip is refused.*link or a device"):
        read_zip(path, at_most(100))


def test_two_tar_members_of_one_name_are_refused(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar.gz", {"a/a.bin": b"1", "b/a.bin": b"2"})
    with pytest.raises(ValueError, match=r"two members 'a\.bin'"):
        read_tar(path, at_most(4))


def test_a_member_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar.gz", {"a.bin": bytes(5)})
    with pytest.raises(ValueError, match=r"'a\.bin' has 5 bytes, more than 4"):
        read_tar(path, at_most(4))


def test_a_zip_member_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", ("a.bin", bytes(5)))
    with pytest.raises(ValueError, match=r"'a\.bin' has 5 bytes, more than 4"):
        read_zip(path, at_most(4))


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9])
def test_a_cut_off_tar_is_named(kept: float, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "cut.tar.gz", {"a.bin": os.urandom(100_000)})
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(ValueError, match=r"cut\.tar\.gz is damaged or incomplete"):
        read_tar(path, at_most(100_000))


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9])
def test_a_cut_off_zip_is_named(kept: float, tmp_path: Path) -> None:
    path = write_zip(tmp_path / "cut.zip", ("a.bin", os.urandom(100_000)))
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(ValueError, match=r"cut\.zip is damaged or incomplete"):
        read_zip(path, at_most(100_000))


def test_a_flipped_bit_in_a_zip_is_noticed(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", ("a.bin", bytes(1000)))
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.zip is damaged"):
        read_zip(path, at_most(1000))


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "empty.tar.gz"
    path.touch()
    with pytest.raises(ValueError, match=r"empty\.tar\.gz is damaged or incomplete"):
        read_tar(path, at_most(4))


def test_nothing_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    read_tar(write_tar(tmp_path / "x.tar.gz", GOOD), at_most(4))
    assert os.listdir(tmp_path) == ["x.tar.gz"]


def test_a_tar_need_not_be_compressed(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("a.bin")
        info.size = 2
        archive.addfile(info, io.BytesIO(b"ok"))
    assert read_tar(path, at_most(4)) == {"a.bin": b"ok"}
