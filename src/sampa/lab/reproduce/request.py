"""How the user asks for an experiment; nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sampa.lab.options import Count, Folder, options
from sampa.lab.results.paper import Scale


@options
@dataclass(frozen=True)
class Request:
    """How an experiment is to be carried out.

    Attributes:
        scale: paper (its settings untouched; needs GPUs), cpu (reduced, on real data), or smoke
            (seconds, on embedded digits).
        out: Folder of all experiments and their runs.
        seeds: How many seeds (default: what the experiment needs).
        devices: Processes a run.
        jobs: Runs at the same time (default: as many as there are GPUs, or else cores, for).
        data_dir: Where data sets are (default: the environment's SAMPA_DATA_DIR).
    """

    scale: Scale = "cpu"
    out: Path = Path("runs/reproduce")
    seeds: Count | None = None
    devices: Count = 1
    jobs: Count | None = None
    data_dir: Folder | None = None

    def folder(self, name: str) -> Path:
        """The folder of an experiment or of a tuning at this scale."""
        return self.out / f"{name}-{self.scale}"

    def __str__(self) -> str:
        """The options that repeat it elsewhere: what is this machine's own is left out."""
        seeds = f" --seeds {self.seeds}" if self.seeds else ""
        devices = f" --devices {self.devices}" if self.devices > 1 else ""
        return f"--scale {self.scale}{seeds}{devices}"
