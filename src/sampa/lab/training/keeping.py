"""Which checkpoints a run keeps: it saves, goes back to the newest good one, and prunes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sampa.lab.training import checkpoint, ranks
from sampa.lab.training.checkpoint import BEST, NEWEST, Checkpoint
from sampa.lab.training.claim import Owner
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.manifest import CheckpointError
from sampa.lab.training.ranks import Made
from sampa.lab.training.shards import Shards


class Keeper:
    """The checkpoints of one run: the first process saves; where it is sharded, all do together.

    Attributes:
        saved: The position of the newest good checkpoint, which was read back.
    """

    def __init__(self, folder: RunFolder, keep: int, shards: Shards) -> None:
        self._folder, self._keep, self._shards = folder.checkpoints, keep, shards
        self._owner = Owner(folder.id, folder.require_own)
        self._damaged: set[Path] = set()  # passed over on resume
        self._saves = ranks.is_first() or shards.mesh is not None
        _require_one_folder(folder, shards)
        self.saved = 0

    def newest(self, report: Callable[[str], None]) -> Checkpoint | None:
        """The checkpoint to go on from, None if there is none yet.

        Raises:
            CheckpointError: If none can be used: no run begins again behind its user's back.
        """
        return self._read(lambda: self._newest(report))

    def _read(self, read: Callable[[], Made]) -> Made:
        """By the first process for all, since it wrote; where a run is sharded by each."""
        return read() if self._shards.mesh is not None else ranks.of_first(read)

    def _newest(self, report: Callable[[str], None]) -> Checkpoint | None:
        reports: list[str] = []
        found = checkpoint.newest(self._folder, NEWEST, reports.append, self._owner, self._shards)
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

    def save(
        self, position: int, make_state: Callable[[], dict[str, Any]], best: int | None
    ) -> None:
        """Save what a run goes on from, and prune.

        Raises:
            OSError: If the disk did not take it.
        """
        if not self._saves:
            return
        path = self._save(NEWEST, position, make_state, best)
        self.saved = position
        self._damaged.discard(path)
        if self._shards.is_first:
            self._prune()

    def save_best(self, position: int, make_state: Callable[[], dict[str, Any]]) -> None:
        """Save the best model so far.

        Raises:
            OSError: If the disk did not take it.
        """
        if self._saves:
            self._save(BEST, position, make_state)

    def load_best(self, position: int) -> dict[str, Any]:
        """The state of the best model, which was saved at that position."""
        return self._read(
            lambda: checkpoint.load_best(self._folder, position, self._owner, self._shards)
        )

    def _save(
        self,
        kind: str,
        position: int,
        make_state: Callable[[], dict[str, Any]],
        best: int | None = None,
    ) -> Path:
        made: list[dict[str, Any]] = []
        self._shards.together(lambda: made.append(make_state()))  # it may fail on one process
        return checkpoint.save(
            *(self._folder, kind, position, *made),
            owner=self._owner,
            best=best,
            shards=self._shards,
        )

    def clear_up(self) -> None:
        """Remove what a crash left over, if all that is kept is good."""
        if not self._damaged:
            self._prune()

    def _prune(self) -> None:
        damaged = self._damaged
        checkpoint.prune(self._folder, self.saved, self._keep, owner=self._owner, damaged=damaged)


def _require_one_folder(folder: RunFolder, shards: Shards) -> None:
    """Refuse a sharded run whose processes would write into different folders.

    Raises:
        ValueError: On all of them.
    """
    found = shards.together(lambda: (folder.read("run.json") or {}).get("id"))
    strangers = [rank for rank, other in enumerate(found) if other != found[0]]
    if strangers:
        raise ValueError(
            "--out must be one folder that all processes of a sharded run see, got another on "
            f"ranks {strangers}: put it where every machine sees it, or leave out --shard"
        )
