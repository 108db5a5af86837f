"""Short editions: a signal in any phase stops all ranks at the same step, and nothing is lost."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.lab.training.runs import tiny_run
from tools.stress.outcomes import differences, everything, reference
from tools.stress.sessions import session
from tools.stress.watch import Blow

pytestmark = [pytest.mark.dist, pytest.mark.slow]


@pytest.mark.parametrize("phase", ["evaluation", "exchange"])
@pytest.mark.parametrize("ranks", [(0,), (1,)])
def test_sigterm_in_any_phase_stops_all_ranks_at_the_same_step(
    phase: str, ranks: tuple[int, ...], tmp_path: Path
) -> None:
    run = tiny_run(epochs=4)
    blow = Blow(phase, 2, 0.0, ranks, signal.SIGTERM)
    stopped = session(run, tmp_path / "run", tmp_path / "stopped", world=2, blow=blow, keep=1)
    assert stopped.codes == [128 + signal.SIGTERM] * 2, stopped.output
    first, second = stopped.places
    assert first == second
    resumed = session(run, tmp_path / "run", tmp_path / "resumed", world=2, resume=True, keep=1)
    assert differences(everything(tmp_path / "run", resumed), reference(run)) == []
