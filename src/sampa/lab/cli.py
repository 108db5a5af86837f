"""The `sampa` command."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

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


def main(args: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        How it went: 0 well, 1 failed, 2 wrong usage, 130 interrupted.
    """
    args = sys.argv[1:] if args is None else list(args)
    try:
        import tyro
    except ImportError:
        print("the sampa command needs its extra: pip install 'sampa[train]'", file=sys.stderr)
        return 1
    if not args or args[0] in ("-h", "--help"):
        print(overview())
        return 0
    name = args[0]
    if name not in COMMANDS:
        from sampa.names import unknown

        print(unknown("command", name, COMMANDS), file=sys.stderr)
        return 2
    try:
        function = command(name)
        code = tyro.cli(
            function,
            prog=f"sampa {name}",
            description=description(function),
            args=args[1:],
            config=(tyro.conf.DisallowNone,),
        )
    except (ValueError, OSError, ModuleNotFoundError) as error:
        print(f"sampa {name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"sampa {name}: interrupted", file=sys.stderr)
        return 130
    return code if isinstance(code, int) else 0


def command(name: str) -> Callable[..., Any]:
    """The function behind a command, imported only when it is called for."""
    module = importlib.import_module(f"sampa.lab.commands.{name}")
    return getattr(module, name if hasattr(module, name) else "main")


def description(function: Callable[..., Any]) -> str:
    """A command's docstring up to its arguments, examples included, as it was laid out."""
    return (inspect.getdoc(function) or "").split("\nArgs:")[0].rstrip()


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
