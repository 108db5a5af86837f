"""Which checkpoints a run keeps: it saves, goes back to the newest good one, and prunes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sampa.lab.training import checkpoint
from sampa.lab.training.checkpoint import BEST, NEWEST, Checkpoint, CheckpointError
from sampa.lab.training.claim import Owner
from sampa.lab.training.folder import RunFolder


class Keeper:
    """The checkpoints of one run.

    Attributes:
        saved: The position of the newest good checkpoint, which was read back.
    """

    def __init__(self, folder: RunFolder, keep: int) -> None:
        self._folder, self._keep = folder.checkpoints, keep
        self._owner = Owner(folder.id, folder.require_own)
        self._damaged: set[Path] = set()  # passed over on resume
        self.saved = 0

    def newest(self, report: Callable[[str], None]) -> Checkpoint | None:
        """The checkpoint to go on from, None if there is none yet.

        Raises:
            CheckpointError: If none can be used: no run begins again behind its user's back.
        """
        reports: list[str] = []
        found = checkpoint.newest(self._folder, NEWEST, reports.append, self._owner)
        for text in reports:
            report(text)
        if found is not None:
            self.saved, self._damaged = found.step, checkpoint.passed_over(found)
        elif reports:
            raise CheckpointError(
                f"no checkpoint in {self._folder} can be read, see above: put back a copy of one "
                f"and resume; or remove {self._folder} and resume, which trains again from the "
                "beginning"
            )
        return found

    def save(self, position: int, state: dict[str, Any], best: int | None) -> None:
        """Save what a run goes on from, and prune.

        Raises:
            CheckpointError: If the disk did not take it.
        """
        owner = self._owner
        path = checkpoint.save(self._folder, NEWEST, position, state, owner=owner, best=best)
        self.saved = position
        self._damaged.discard(path)
        self._prune()

    def save_best(self, position: int, state: dict[str, Any]) -> None:
        """Save the best model so far.

        Raises:
            CheckpointError: If the disk did not take it.
        """
        checkpoint.save(self._folder, BEST, position, state, owner=self._owner)

    def load_best(self, position: int) -> dict[str, Any]:
        """The state of the best model, which was saved at that position."""
        return checkpoint.load_best(self._folder, position, self._owner)

    def clear_up(self) -> None:
        """Remove what a crash left over, if all that is kept is good."""
        if not self._damaged:
            self._prune()

    def _prune(self) -> None:
        damaged = self._damaged
        checkpoint.prune(self._folder, self.saved, self._keep, owner=self._owner, damaged=damaged)
