"""Whether a wheel holds every file of the package: templates, numbers of the paper, py.typed.

python tools/check_wheel.py dist/*.whl
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"


def missing_files(wheel: Path) -> list[str]:
    """Files of src/sampa that the wheel leaves out."""
    files = (p for p in (SOURCE / "sampa").rglob("*") if p.is_file())
    wanted = {p.relative_to(SOURCE).as_posix() for p in files if "__pycache__" not in p.parts}
    with zipfile.ZipFile(wheel) as archive:
        return sorted(wanted - set(archive.namelist()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Check that a wheel holds the whole package.")
    parser.add_argument("wheel", type=Path)
    missing = missing_files(parser.parse_args().wheel)
    for name in missing:
        print(f"not in the wheel: {name}")
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
