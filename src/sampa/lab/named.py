"""What users name on the command line: code, and folders; and the fingerprints of both.

`file.py:name` and `package.module:name` are code; `folder:PATH` and `hf:PATH` are folders. Nothing
here imports torch.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from sampa.lab.files import LARGEST_FILE, open_file
from sampa.messages import require, unknown

FOLDER, HUGGING_FACE = "folder:", "hf:"
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def is_own(name: str) -> bool:
    """Whether a name is of something of the user's, and not from our registries."""
    return ":" in name


def is_code(name: str) -> bool:
    """Whether a name is of something that must be executed to be had."""
    return is_own(name) and not name.startswith((FOLDER, HUGGING_FACE))


def folder_of(name: str) -> Path:
    """The folder behind `folder:PATH` or `hf:PATH`.

    Raises:
        FileNotFoundError: If it does not exist.
    """
    path = Path(name.partition(":")[2]).expanduser()
    if not path.is_dir():
        raise FileNotFoundError(f"{name!r} names the folder {path}, which does not exist")
    return path


def load_code(name: str, what: str) -> Any:
    """Execute the file or import the module that the user named, and take the object from it.

    The folder of a file, or the current one for a module, is searched for what it imports: after
    Python's own and the installed packages, so that nothing of these is hidden by it.

    Args:
        name: `file.py:name` or `package.module:name`.
        what: Its role, for messages.

    Raises:
        ValueError: If there is no such thing, or its file fails.
    """
    source, _, attribute = name.rpartition(":")
    require(what, name, _is_possible(source, attribute), "file.py:name or package.module:name")
    module = _executed(Path(source)) if source.endswith(".py") else _imported(source)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            known = [n for n, v in vars(found).items() if callable(v) and not n.startswith("_")]
            raise ValueError(unknown(f"{what} in {source}", attribute, known))
        found = getattr(found, part)
    if not callable(found):
        kind = type(found).__name__
        raise ValueError(f"{what} must be a function or a class, got {name!r}, which is a {kind}")
    return found


def called(function: Any, name: str, *arguments: Any, **options: Any) -> Any:
    """What the user's function returns.

    Raises:
        ValueError: With the line in which it failed, if it did.
    """
    try:
        return function(*arguments, **options)
    except Exception as error:
        raise ValueError(f"{name} failed: {_told(error)}") from error


def _is_possible(source: str, attribute: str) -> bool:
    is_source = source.endswith(".py") or _MODULE.fullmatch(source) is not None
    return is_source and _MODULE.fullmatch(attribute) is not None


def _executed(file: Path) -> ModuleType:
    path = file.expanduser().resolve()
    if not path.is_file():
        raise FileNotFoundError(
            f"the file {file} does not exist; it was named with --model, --data or as a recipe"
        )
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:  # its recipe, data and network may be in one file: executed once
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look there
    _search_too(path.parent)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ValueError(f"{file} cannot be executed: {_told(error)}") from error
    return module


def _imported(module: str) -> ModuleType:
    _search_too(Path.cwd())
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise ValueError(f"the module {module} cannot be imported: {_told(error)}") from error


def _search_too(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _told(error: Exception) -> str:
    """An exception in one line, with its place."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    at = "" if isinstance(error, SyntaxError) else place  # which says it itself
    return f"{type(error).__name__}: {error}{at}"


# ---- fingerprints ----------------------------------------------------------------------------


def fingerprint(name: str) -> dict[str, str]:
    """Where something of the user's is, and a hash by which a change is noticed.

    A file's is of its content; a folder's is of the names and sizes of all files in it, since to
    read all images at every start would take too long.

    Raises:
        ValueError, OSError: If it does not exist.
    """
    if is_code(name):
        return file_fingerprint(_file_of(name))
    folder = folder_of(name)
    return {"path": str(folder.resolve()), "sha256": _folder_hash(folder)}


def file_fingerprint(file: Path) -> dict[str, str]:
    """Where a file is, and the SHA-256 of its content."""
    with open_file(file, LARGEST_FILE) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"path": str(file.resolve()), "sha256": digest}


def _file_of(name: str) -> Path:
    load_code(name, "what is named")  # its errors are better than those of a search
    source = name.rpartition(":")[0]
    if source.endswith(".py"):
        return Path(source).expanduser()
    file = sys.modules[source].__file__
    require(f"the module {source}", file, file is not None, "one that has a file")
    assert file is not None
    return Path(file)


def _folder_hash(folder: Path) -> str:
    total = hashlib.sha256()
    for place, folders, files in os.walk(folder):
        folders.sort()
        for file in sorted(files):
            path = Path(place, file)
            entry = f"{path.relative_to(folder)}\0{path.stat().st_size}\n"
            total.update(entry.encode("utf-8", "surrogateescape"))
    return total.hexdigest()
