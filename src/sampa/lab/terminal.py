"""What commands print: text in which no name can steer the terminal."""

from __future__ import annotations

import hashlib
import os
import sys
import unicodedata
from typing import TextIO

SAID = (
    "SAMPA_SAID"  # in the environment of ranks: a folder with a mark for each error that was told
)
_KEPT = "\n\t"
# Invisible marks that change the direction of text.
_TURNING = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def harmless(text: object) -> str:
    """The text with its control characters written out, such as \\x1b for escape.

    Names in files and arguments may hold codes that clear a terminal or forge its output, and
    characters that cannot be printed at all.
    """
    return "".join(c if _is_harmless(c) else _written_out(c) for c in str(text))


def _is_harmless(character: str) -> bool:
    if character.isprintable() or character in _KEPT:
        return True
    steers = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
    return not steers and character not in _TURNING


def _written_out(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def say(text: object, *, file: TextIO | None = None, end: str = "\n") -> None:
    """Print a line, at once."""
    print(harmless(text), file=file or sys.stdout, end=end, flush=True)


def complain(text: str) -> None:
    """Tell an error, once if all ranks of a run have the same to tell."""
    if _is_first_to_tell(text):
        say(text, file=sys.stderr)


def _is_first_to_tell(text: str) -> bool:
    folder = os.environ.get(SAID)
    if not folder:
        return True
    mark = os.path.join(folder, hashlib.sha256(text.encode("utf-8", "replace")).hexdigest())
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    except OSError:  # twice is better than never
        return True
    return True


def has_control_characters(text: str) -> bool:
    """Whether a terminal would act on something in it."""
    return any(unicodedata.category(c) == "Cc" and c not in _KEPT for c in text)
