"""Whether a wheel holds every file of the package, and works where nothing else is.

    python tools/check_wheel.py dist/*.whl
    python tools/check_wheel.py dist/*.whl --install build/wheel

The second installs it with pinned dependencies into a new environment in that folder, and runs
`sampa demo` there, away from the source.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PINS = ROOT / "constraints.txt"


def missing_files(wheel: Path) -> list[str]:
    """Files of src/sampa that the wheel leaves out."""
    files = (p for p in (SOURCE / "sampa").rglob("*") if p.is_file())
    wanted = {p.relative_to(SOURCE).as_posix() for p in files if "__pycache__" not in p.parts}
    with zipfile.ZipFile(wheel) as archive:
        return sorted(wanted - set(archive.namelist()))


def try_out(wheel: Path, folder: Path) -> None:
    """Install a wheel into a new environment and run the demo from it."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder / "env", with_pip=True)
    programs = folder.resolve() / "env" / ("Scripts" if os.name == "nt" else "bin")
    torch = next(line for line in PINS.read_text().splitlines() if line.startswith("torch=="))
    wanted = [torch, f"sampa[train,report] @ {wheel.resolve().as_uri()}"]
    pip = [str(programs / "python"), "-m", "pip", "install", "-q", "-c", str(PINS)]
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    for command in ([*pip, *wanted], [str(programs / "sampa"), "demo"]):
        subprocess.run(command, cwd=folder, env=clean, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Check that a wheel holds the whole package.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--install", type=Path, metavar="FOLDER", help="try it out in there")
    arguments = parser.parse_args()
    missing = missing_files(arguments.wheel)
    for name in missing:
        print(f"not in the wheel: {name}")
    if not missing and arguments.install is not None:
        try_out(arguments.wheel, arguments.install)
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
