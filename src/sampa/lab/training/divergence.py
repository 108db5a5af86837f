"""When a run is given up: its loss left all bounds, and every further step is a waste of time."""

from __future__ import annotations

import math
from statistics import fmean

from sampa.lab.training.run import Run

IN_A_ROW = 20  # losses that are not finite: a few are dropped steps, which a run gets over
BOUND = (
    1000  # times the first loss, which the mean of an epoch does not reach while anything learns
)


class Diverged(RuntimeError):
    """A run without a result. All ranks raise it at the same batch: they know the same losses."""

    def __init__(self, run: Run, epoch: int, what: str) -> None:
        rho = "" if run.rho is None else f" or a smaller --rho than {run.rho:g}"
        super().__init__(
            f"{run.name} {run.method} seed {run.seed} diverged in epoch {epoch + 1}: {what}; "
            f"choose a lower --lr than {run.base.lr:g}{rho}"
        )


class DivergenceWatch:
    """Looks at the losses of a run, batch by batch."""

    def __init__(self, run: Run, per_epoch: int) -> None:
        self._run, self._per_epoch = run, per_epoch
        self._in_a_row = self._in_epoch = 0  # losses that were not finite
        self._finite: list[float] = []  # the others of the epoch

    def after_batch(self, epoch: int, loss: float) -> None:
        """Look at the loss of a batch.

        Raises:
            Diverged: If none was finite for some time.
        """
        is_bad = not math.isfinite(loss)
        self._in_a_row, self._in_epoch = is_bad * (self._in_a_row + 1), self._in_epoch + is_bad
        if not is_bad:
            self._finite.append(loss)
        if self._in_a_row == IN_A_ROW:
            raise Diverged(self._run, epoch, f"{IN_A_ROW} losses in a row were not finite")

    def after_epoch(self, epoch: int, mean: float, first: float) -> None:
        """Look at the mean loss of an epoch, beside the first loss of the run.

        Where single losses were not finite, and the mean with them, at that of the others.

        Raises:
            Diverged: If most were not finite, or the mean is far above the first.
        """
        bad, self._in_epoch = self._in_epoch, 0
        finite, self._finite = self._finite, []
        if 2 * bad > self._per_epoch:
            what = f"{bad} of {self._per_epoch} losses were not finite"
            raise Diverged(self._run, epoch, what)
        if finite and not math.isfinite(mean):
            mean = fmean(finite)
        if math.isfinite(first) and mean > BOUND * max(abs(first), 1.0):
            what = f"the mean loss is {mean:.4g}, the first of the run was {first:.4g}"
            raise Diverged(self._run, epoch, what)
