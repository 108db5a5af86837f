"""The checkpoints of a run: the newest to go on from, and the best to be reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sampa.lab.training import checkpoint
from sampa.lab.training.checkpoint import Checkpoint, CheckpointError
from sampa.lab.training.folder import RunFolder

NEWEST, BEST = "step-", "best-"


class Checkpoints:
    """Those in a run's folder.

    Args:
        folder: Of the run.
        keep: How many of the newest are kept.
    """

    def __init__(self, folder: RunFolder, keep: int) -> None:
        self._path = folder.checkpoints
        self._keep = keep

    def save(self, position: int, state: dict[str, Any]) -> None:
        checkpoint.save(self._path, f"{NEWEST}{position:09}", position, state)
        self.prune()

    def save_best(self, position: int, state: dict[str, Any]) -> None:
        checkpoint.save(self._path, f"{BEST}{position:09}", position, state)

    def best(self, position: int) -> dict[str, Any]:
        """The best model, which was saved at that position.

        Raises:
            CheckpointError: If it is damaged: another model's score would be no answer.
        """
        try:
            return checkpoint.load(self._path / f"{BEST}{position:09}").state
        except CheckpointError as error:
            raise CheckpointError(
                f"{error}; it is the model to be reported: remove {self._path} and "
                "resume, which trains again from the beginning"
            ) from error

    def newest(self, warn: Callable[[str], None]) -> tuple[Checkpoint | None, bool]:
        """The newest good one, and whether no newer one was damaged."""
        damaged: list[str] = []
        found = checkpoint.newest(self._path, NEWEST, damaged.append)
        for report in damaged:
            warn(report)
        return found, not damaged

    def prune(self) -> None:
        """Remove what is neither among the newest nor the best."""
        checkpoint.prune(self._path, NEWEST, self._keep)
        checkpoint.prune(self._path, BEST, 1)
