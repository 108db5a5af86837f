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
        record: Folder for what is worth keeping: table, figures, all numbers as JSON, and each run
            as soon as it is finished. Runs that it holds are not made again.
    """

    scale: Scale = "cpu"
    out: Path = Path("runs/reproduce")
    seeds: Count | None = None
    devices: Count = 1
    jobs: Count | None = None
    data_dir: Folder | None = None
    record: Path | None = None

    def folder(self, name: str) -> Path:
        """The folder of an experiment or of a tuning at this scale."""
        return self.out / f"{name}-{self.scale}"

    def kept(self, name: str) -> Path | None:
        """The file that finished runs are kept in, if they are; experiments share tunings."""
        if self.record is None:
            return None
        is_tuning = name.startswith("tuning-")
        shared = self.record.parent / f"{name}-{self.scale}.jsonl"
        return shared if is_tuning else self.record / "runs.jsonl"

    def __str__(self) -> str:
        """The options that repeat it elsewhere: what is this machine's own is left out."""
        seeds = f" --seeds {self.seeds}" if self.seeds else ""
        devices = f" --devices {self.devices}" if self.devices > 1 else ""
        return f"--scale {self.scale}{seeds}{devices}"
