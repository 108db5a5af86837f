"""Hooks of the site's build; mkdocs.yml names this file.

mkdocs is imported by name, so that types can be checked where it is not installed.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from typing import Any

from sampa.lab.cli import COMMANDS
from tools.site.pages import DOCS, OUTSIDE, PICTURES, as_page, outside_files, uri_of
from tools.site.pages import with_site_links as turned

HELP = "<!-- commands: written by the build -->"
COLUMNS = "80"


def on_files(files: Any, config: Any) -> Any:
    """Add the files outside of docs that pages link to."""
    mkdocs = importlib.import_module("mkdocs.structure.files")
    for path in outside_files(sorted(DOCS.rglob("*.md"))):
        picture = path.suffix in PICTURES
        content = path.read_bytes() if picture else as_page(path)
        level = mkdocs.InclusionLevel.NOT_IN_NAV
        files.append(mkdocs.File.generated(config, uri_of(path), content=content, inclusion=level))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links, write the commands, and leave what the tests need out of fences."""
    uri = page.file.src_uri
    if uri.startswith(OUTSIDE) and uri.endswith(".py.md"):
        page.meta["search"] = {"exclude": True}
    markdown = turned(markdown, uri)
    if HELP in markdown:
        markdown = markdown.replace(HELP, command_help())
    return re.sub(r"^```python ranks=\d+$", "```python", markdown, flags=re.MULTILINE)


def command_help() -> str:
    """Every command with what its `--help` prints."""
    return "\n\n".join(
        f"## sampa {name}\n\n```text\n{_printed(name, '--help')}\n```" for name in COMMANDS
    )


def _printed(*arguments: str) -> str:
    command = [sys.executable, "-m", "sampa", *arguments]
    plain = {**os.environ, "COLUMNS": COLUMNS, "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(command, env=plain, capture_output=True, text=True, check=True)
    return done.stdout.strip()
