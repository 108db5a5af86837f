"""What a process listens on, as Linux shows it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

LOOPBACK = "0100007F"  # 127.0.0.1


def listening(pid: int) -> set[str]:
    """The addresses on which a process accepts connections."""
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            links.append(os.readlink(entry))
    own = {link.removeprefix("socket:[").rstrip("]") for link in links if link[:6] == "socket"}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and row[9] in own}
