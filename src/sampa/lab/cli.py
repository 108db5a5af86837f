"""The `sampa` command. Only a command that is carried out imports torch."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Sequence

import sampa
from sampa.lab.children import follow_parent
from sampa.lab.terminal import has_control_characters, say
from sampa.lab.training.claim import FolderReplaced
from sampa.messages import WrongUsage, unknown

COMMANDS = {
    "train": "train a recipe with a method, on one device or several",
    "compare": "run a grid of methods and seeds, and print mean ± std",
    "reproduce": "run one of the paper's tables or figures, and compare with its values",
    "eval": "evaluate a finished run's checkpoint again",
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
    if name in ("-h", "--help"):
        say(overview())
        return 0
    if name == "--version":
        say(f"sampa {sampa.__version__}")
        return 0
    if name not in COMMANDS:
        say(unknown("command", name, COMMANDS), file=sys.stderr)
        return 2
    for argument in filter(has_control_characters, rest):
        rule = "must be free of control characters; rename what has them in its name"
        say(f"sampa {name}: an argument {rule}, got {argument!r}", file=sys.stderr)
        return 2
    try:
        return run(name, rest)
    except (ValueError, OSError, ModuleNotFoundError, FolderReplaced) as error:
        say(f"sampa {name}: {error}", file=sys.stderr)
        return 2 if isinstance(error, WrongUsage) else 1
    except KeyboardInterrupt:
        say(f"sampa {name}: interrupted", file=sys.stderr)
        return 130


def run(name: str, args: Sequence[str]) -> int:
    """Read a command's arguments, then import what carries it out."""
    try:
        import tyro

        from sampa.lab.commands.arguments import ARGUMENTS
    except ModuleNotFoundError as error:
        if error.name != "tyro":
            raise
        raise ModuleNotFoundError("it needs its extra: pip install 'sampa[train]'") from error
    kind = ARGUMENTS[name]
    arguments = tyro.cli(
        kind,
        prog=f"sampa {name}",
        # The docstring up to its attributes, examples included, as it was laid out.
        description=(inspect.getdoc(kind) or "").split("\nAttributes:")[0].rstrip(),
        args=args,
        config=(tyro.conf.DisallowNone,),
    )
    return importlib.import_module(f"sampa.lab.commands.{name}").main(arguments)


def overview() -> str:
    """What `sampa --help` prints."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            "usage: sampa COMMAND ...",
            "",
            "Sharpness-aware training in PyTorch: SAM, SAMPa and their variants.",
            "",
            "commands:",
            *lines,
            "",
            "`sampa COMMAND --help` shows a command's options and examples.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
