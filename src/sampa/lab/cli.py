"""The `sampa` command. Only a command that is carried out imports torch."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import sampa
from sampa.lab.children import follow_parent
from sampa.lab.terminal import complain, has_control_characters, say
from sampa.lab.training.claim import FolderReplaced
from sampa.lab.training.divergence import Diverged
from sampa.messages import WrongUsage, unknown

COMMANDS = {
    "train": "train a recipe with a method, on one device or several",
    "compare": "run a grid of methods and seeds, and print mean ± std",
    "sweep": "choose rho and lambda on validation data",
    "reproduce": "run one of the paper's tables or figures, and compare with its values",
    "eval": "evaluate a finished run's checkpoint again",
    "flatness": "measure sharpness, curvature and landscapes of finished models",
    "report": "make one HTML page from finished runs",
    "bench": "measure what SAMPa gains on this machine",
    "demo": "compare SGD, SAM and SAMPa on digits, in a minute or two",
    "methods": "list all methods with their cost and defaults",
}
"""What each does. Its options are in `commands.arguments`, its `main` in `commands.<name>`."""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        How it went: 0 well, 1 failed, 2 wrong usage, 130 interrupted.
    """
    follow_parent()
    name, *rest = (sys.argv[1:] if args is None else list(args)) or ["--help"]
    try:
        code = respond(name, rest)
        sys.stdout.flush()  # a reader that has gone is noticed here, and not when Python ends
        return code
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (ValueError, OSError, ModuleNotFoundError, FolderReplaced, Diverged) as error:
        complain(f"sampa {name}: {error}")
        return 2 if isinstance(error, WrongUsage) else 1
    except (KeyboardInterrupt, ImportError, SystemError) as error:
        # An extension that is being loaded makes an error of its own of Ctrl-C.
        behind = error.__cause__ or error.__context__ or error
        if not isinstance(error, KeyboardInterrupt) and not isinstance(behind, KeyboardInterrupt):
            raise
        complain(f"sampa {name}: interrupted")
        return 130


def respond(name: str, args: Sequence[str]) -> int:
    """What the first argument asks for: help, the version, or a command."""
    if name in ("-h", "--help"):
        say(overview())
        return 0
    if name == "--version":
        say(f"sampa {sampa.__version__}")
        return 0
    if name not in COMMANDS:
        say(unknown("command", name, COMMANDS), file=sys.stderr)
        return 2
    for argument in filter(has_control_characters, args):
        rule = "must be free of control characters; rename what has them in its name"
        say(f"sampa {name}: an argument {rule}, got {argument!r}", file=sys.stderr)
        return 2
    return run(name, args)


def run(name: str, args: Sequence[str]) -> int:
    """Read a command's arguments, then import what carries it out."""
    try:
        from sampa.lab.commands.arguments import read_arguments
    except ModuleNotFoundError as error:
        if error.name != "tyro":
            raise
        raise ModuleNotFoundError("it needs its extra: pip install 'sampa[train]'") from error
    arguments = read_arguments(name, args)
    with heeded_afterwards(signal.SIGINT):
        command = importlib.import_module(f"sampa.lab.commands.{name}")
    return command.main(arguments)


@contextmanager
def heeded_afterwards(number: signal.Signals) -> Iterator[None]:
    """Keep a signal until the block is left, for imports.

    Packages that are interrupted in their initialization fail in ways of their own; torch and NumPy
    take a second or two.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept: list[int] = []
    before = signal.signal(number, lambda number, _: kept.append(number))
    try:
        yield
    finally:
        signal.signal(number, before)
    if kept:
        signal.raise_signal(number)


def overview() -> str:
    """What `sampa --help` prints, as wide as the terminal."""
    columns, indent = min(shutil.get_terminal_size().columns, 100), max(map(len, COMMANDS)) + 4
    wrap = partial(textwrap.fill, width=columns, break_on_hyphens=False)
    lines = [
        wrap(f"  {name}".ljust(indent) + summary, subsequent_indent=" " * indent)
        for name, summary in COMMANDS.items()
    ]
    return "\n".join(
        [
            "usage: sampa COMMAND ...",
            "",
            wrap("Sharpness-aware training in PyTorch: SAM, SAMPa and their variants."),
            "",
            "commands:",
            *lines,
            "",
            wrap("`sampa COMMAND --help` shows a command's options and examples."),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
