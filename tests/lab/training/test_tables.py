"""The table of a grid, against numbers computed by hand."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from sampa.lab.results.fitted import Fitted
from sampa.lab.results.outcome import RunResult
from sampa.lab.training.records import Results, comparison, first_metric, read_results


def a_result(seconds: float, **test: float) -> RunResult:
    return RunResult(test=test, seconds=seconds)


RESULTS: Results = {
    "sgd": {0: a_result(10.0, accuracy=90.0), 1: a_result(20.0, accuracy=94.0)},
    "sampa": {s: a_result(30.0, accuracy=a) for s, a in enumerate((93.0, 95.0, 97.0))},
}


def printed(results: Results) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(Fitted(comparison("tiny", results, "about it")))
    return captured.get()


def test_the_table_shows_each_method_and_its_difference_to_the_first() -> None:
    lines = [" ".join(line.split()) for line in printed(RESULTS).splitlines()]
    assert "method n test accuracy against sgd ± 95 % seconds" in lines
    assert "sgd 2 92.00 ± 2.83 – 15.0" in lines
    assert "sampa 3 95.00 ± 2.00 +2.00 ± 12.71 30.0" in lines  # 3 and 1, on the seeds of both
    assert "about it" in lines


def test_a_difference_of_one_seed_has_no_error() -> None:
    assert "+3.00 " in printed({method: {0: runs[0]} for method, runs in RESULTS.items()})


def test_the_first_metric_counts() -> None:
    assert first_metric({"sgd": {0: a_result(1.0, matthews=50.0, accuracy=80.0)}}) == "matthews"


def test_results_that_are_finished_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "sam" / "seed-1"
    folder.mkdir(parents=True)
    result = {"test": {"accuracy": 91.0}, "seconds": 5.0, "best_epoch": 3}
    (folder / "result.json").write_text(json.dumps(result))
    ((seed, found),) = read_results(tmp_path, ["sgd", "sam"], [0, 1])["sam"].items()
    assert (seed, found.test, found.seconds) == (1, {"accuracy": 91.0}, 5.0)
    assert found.best_epoch == 3
