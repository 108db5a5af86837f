"""Notes: words by hand beside a record, from Markdown to blocks of plain text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Piece:
    """Text, or the name of something in the code."""

    text: str
    is_code: bool = False


@dataclass(frozen=True)
class Block:
    """A heading, a paragraph or an item of a list."""

    kind: Literal["heading", "text", "item"]
    pieces: tuple[Piece, ...]


def blocks(notes: str) -> tuple[Block, ...]:
    """Headings, paragraphs, items and `code`; all else in Markdown stays as it is written."""
    lines = re.sub(r"(?m)^(#+ .*|[-*] )", r"\n\1", notes)  # a paragraph of their own
    lines = re.sub(r"(?m)^(#+ .*)$", r"\1\n", lines)
    parts = (" ".join(part.split()) for part in re.split(r"\n\s*\n", lines))
    return tuple(_block(part) for part in parts if part)


def _block(text: str) -> Block:
    if text.startswith("#"):
        return Block("heading", _pieces(text.lstrip("# ")))
    if text.startswith(("- ", "* ")):
        return Block("item", _pieces(text[2:]))
    return Block("text", _pieces(text))


def _pieces(text: str) -> tuple[Piece, ...]:
    """Every other part between backticks is code."""
    parts = text.split("`") if text.count("`") % 2 == 0 else [text]
    return tuple(Piece(part, i % 2 == 1) for i, part in enumerate(parts) if part)
