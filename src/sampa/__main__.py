"""The `sampa` command, also as `python -m sampa`."""

import sys


def main() -> int:
    """Run what the command line says; Ctrl-C is one line already while the first imports go on."""
    try:
        from sampa.lab.cli import main as command

        return command()
    except KeyboardInterrupt:
        print("sampa: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
