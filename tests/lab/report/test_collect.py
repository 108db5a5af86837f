"""Finding and reading runs: what is whole counts, what is not is listed with the reason."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from sampa.lab.conditions import flat
from sampa.lab.report.collect import collect
from sampa.lab.report.records import Paper, read_paper
from sampa.lab.results.paper import Value
from tests.lab.report.folders import a_run, write_grid, write_run


def reasons(root: Path) -> dict[str, str]:
    return {problem.place: problem.reason for problem in collect([root]).left_out}


def test_all_runs_below_a_folder_are_found(tmp_path: Path) -> None:
    found = collect([write_grid(tmp_path / "runs")])
    assert len(found.runs) == 9
    assert not found.left_out
    assert found.runs[0].place == "runs/sam/seed-0"


def test_a_run_folder_itself_can_be_given(tmp_path: Path) -> None:
    write_run(tmp_path / "one", a_run())
    assert [record.place for record in collect([tmp_path / "one"]).runs] == ["one"]


def test_folders_that_overlap_count_a_run_once(tmp_path: Path) -> None:
    root = write_grid(tmp_path / "runs")
    found = collect([root, root / "sam", tmp_path / "runs" / ".." / "runs"])
    assert len(found.runs) == 9
    assert not found.left_out


def test_a_record_holds_what_the_files_say(tmp_path: Path) -> None:
    write_run(tmp_path / "run", a_run("sam", seed=1), accuracy=91.5, seconds=12.5, best_epoch=0)
    (record,) = collect([tmp_path]).runs
    assert record.result.test == {"accuracy": 91.5, "top5": 99.0}
    assert (record.result.seconds, record.result.best_epoch) == (12.5, 0)
    assert record.curves["validation_accuracy"] == {1: 88.5, 2: 89.5, 3: 90.5}
    assert record.conditions["versions.torch"] == "2.13.0"


def test_missing_numbers_are_left_out_of_curves_and_infinite_ones_are_gaps(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", a_run())
    folder.append({"epoch": 3, "train_loss": math.inf, "sharpness": None})
    (record,) = collect([tmp_path]).runs
    assert "sharpness" not in record.curves
    assert math.isnan(record.curves["train_loss"][4])


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"folder must be an existing folder, got '.*nowhere'"):
        collect([tmp_path / "nowhere"])


def test_no_run_at_all_is_an_error_that_says_what_makes_them(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no run found below .*`sampa train`"):
        collect([tmp_path])


def test_an_unfinished_run_is_listed_with_its_epochs(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "half", a_run(), finished=False)
    assert reasons(tmp_path / "runs") == {"runs/half": "unfinished: 3 epochs and no result.json"}


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("run.json", "{", "run.json is not readable: Expecting"),
        ("run.json", "[]", "run.json is not readable: no JSON object but a list"),
        ("run.json", "{}", "run.json must have 'run'"),
        ("run.json", '{"run": {"color": 1}}', "field of run must be a known name, got 'color'"),
        ("run.json", '{"run": {"name": "toy"}}', "run must have a field 'about'"),
        ("metrics.jsonl", '{"epoch": 0}\n{"epo', "metrics.jsonl is not readable"),
        ("metrics.jsonl", "3\n", "metrics.jsonl must have an object with 'epoch'"),
        ("result.json", '{"test": 3}', "result.json must have 'test'"),
        ("result.json", '{"test": {}}', "result.json must have a finite test metric"),
        (
            "result.json",
            '{"test": {"accuracy": NaN}}',
            "result.json must have a finite test metric",
        ),
        ("result.json", '{"test": {"accuracy": 1}}', "result.json must have 'best_epoch'"),
        ("result.json", b"\xff\xfe", "result.json is not readable: 'utf-8' codec"),
    ],
)
def test_a_damaged_file_is_listed_with_the_reason(
    tmp_path: Path, file: str, text: str | bytes, reason: str
) -> None:
    write_run(tmp_path / "runs" / "bad", a_run())
    data = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "runs" / "bad" / file).write_bytes(data)
    assert reason in reasons(tmp_path / "runs")["runs/bad"]


@pytest.mark.parametrize("field", ["name", "method", "rhos"])
def test_a_field_of_another_kind_is_listed(tmp_path: Path, field: str) -> None:
    folder = write_run(tmp_path / "runs" / "bad", a_run())
    saved = folder.read("run.json")
    assert saved is not None
    saved["run"][field] = 5
    folder.write("run.json", saved)
    assert f"run.{field} must be" in reasons(tmp_path / "runs")["runs/bad"]


def test_a_file_that_cannot_be_read_is_listed_without_the_path_on_this_machine(
    tmp_path: Path,
) -> None:
    (tmp_path / "runs" / "bad" / "run.json").mkdir(parents=True)
    expected = {"runs/bad": "a file is not readable: it must be an ordinary file, not a folder"}
    assert reasons(tmp_path / "runs") == expected


def test_results_without_a_run_are_listed(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "bad", a_run())
    (tmp_path / "runs" / "bad" / "run.json").unlink()
    assert reasons(tmp_path / "runs") == {"runs/bad": "run.json is missing"}


# ---- published values ------------------------------------------------------------------------


def test_published_values_come_from_the_nearest_folder(tmp_path: Path) -> None:
    root = write_grid(tmp_path / "runs")
    far = {"metric": "accuracy", "values": {"sam": 1.0}}
    near = {"metric": "accuracy", "values": {"sam": [94.26, 0.7]}, "source": "Table 2"}
    (root / "paper.json").write_text(json.dumps(far))
    (root / "sam" / "paper.json").write_text(json.dumps(near))
    papers = {record.run.method: record.paper for record in collect([root]).runs}
    assert papers["sam"] == Paper("accuracy", {"sam": Value(94.26, 0.7)}, "Table 2")
    assert papers["sgd"] == Paper("accuracy", {"sam": Value(1.0)})


def test_published_values_above_the_given_folder_are_not_taken(tmp_path: Path) -> None:
    root = write_grid(tmp_path / "runs")
    (tmp_path / "paper.json").write_text("{}")
    assert all(record.paper is None for record in collect([root]).runs)


def test_damaged_published_values_are_listed_once(tmp_path: Path) -> None:
    root = write_grid(tmp_path / "runs")
    (root / "paper.json").write_text('{"metric": "accuracy", "values": {"sam": "high"}}')
    found = collect([root])
    assert len(found.runs) == 9
    assert [problem.place for problem in found.left_out] == ["runs/paper.json"]
    assert "a number or [mean, std]" in found.left_out[0].reason


def test_published_values_may_have_no_deviation(tmp_path: Path) -> None:
    file = tmp_path / "paper.json"
    file.write_text('{"metric": "accuracy", "values": {"a": 1, "b": [2], "c": [3, null]}}')
    assert read_paper(file).values == {"a": Value(1), "b": Value(2), "c": Value(3)}


def test_nested_values_become_one_level_of_text() -> None:
    nested = {"a": {"b": 1, "c": {}}, "d": None, "e": [1, 2]}
    assert flat(nested) == {"a.b": "1", "a.c": "none", "d": "none", "e": "[1, 2]"}
