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
        scale: paper (its settings untouched; needs GPUs), cpu (reduced, on real data), or
            smoke (seconds, on embedded digits).
        out: Folder of all experiments and their runs.
        seeds: How many seeds (default: what the experiment needs).
        devices: Processes a run.
        jobs: Runs at the same time (default: as many as there are GPUs, or else cores, for).
        data_dir: Where data sets are (default: the environment's SAMPA_DATA_DIR).
        record: Folder for what is worth keeping: table, figures, all numbers as JSON, and each run
            as soon as it is finished. Runs that it holds are not made again.
        allow_dirty: Record although the source has changes that are not committed; the record says
            so.
    """

    scale: Scale = "cpu"
    out: Path = Path("runs/reproduce")
    seeds: Count | None = None
    devices: Count = 1
    jobs: Count | None = None
    data_dir: Folder | None = None
    record: Path | None = None
    allow_dirty: bool = False

    @property
    def takes_dirty(self) -> bool:
        """Whether runs of source that is not committed count: nothing is recorded, or so asked."""
        return self.record is None or self.allow_dirty

    @property
    def processes(self) -> int:
        """Those that make a run: a test of seconds is made by this one."""
        return 1 if self.scale == "smoke" else self.devices

    def folder(self, name: str) -> Path:
        """The folder of an experiment or of a tuning at this scale."""
        return self.out / f"{name}-{self.scale}"

    def kept(self, name: str) -> Path | None:
        """The file that finished runs are kept in, if they are; experiments share tunings."""
        if self.record is None:
            return None
        shared = self.record.parent / f"{name}-{self.scale}.jsonl"
        return shared if self.is_tuning(name) else self.record / "runs.jsonl"

    @staticmethod
    def is_tuning(name: str) -> bool:
        return name.startswith("tuning-")

    def __str__(self) -> str:
        """The options that repeat it elsewhere: what is this machine's own is left out."""
        seeds = f" --seeds {self.seeds}" if self.seeds else ""
        devices = f" --devices {self.devices}" if self.devices > 1 else ""
        return f"--scale {self.scale}{seeds}{devices}"
