"""GLUE's files: split on tabs, and nothing else."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from sampa.lab.data.glue import TASKS, find_task, load_glue


def write(folder: Path, task: str, split: str, text: str) -> Path:
    path = folder / task / f"{split}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


HEAD = "index\tsentence1\tsentence2\tlabel\n"
MNLI_HEAD = "index\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n"


def test_there_are_nine_tasks() -> None:
    assert set(TASKS) == {
        "CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI"
    }  # fmt: skip


def test_only_sts_b_is_a_regression() -> None:
    assert [task.name for task in TASKS.values() if task.is_regression] == ["STS-B"]


@pytest.mark.parametrize(("name", "number"), [("MNLI", 3), ("STS-B", 1), ("RTE", 2), ("CoLA", 2)])
def test_a_model_has_as_many_outputs_as_the_task_has_labels(name: str, number: int) -> None:
    assert TASKS[name].num_labels == number


def test_mnli_has_two_development_splits() -> None:
    assert TASKS["MNLI"].splits == ("train", "dev_matched", "dev_mismatched")


@pytest.mark.parametrize("name", ["cola", "CoLA", "COLA"])
def test_tasks_are_found_in_any_case(name: str) -> None:
    assert find_task(name).name == "CoLA"


def test_an_unknown_task_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"task must be a known name, got 'SST2'.*'SST-2'"):
        find_task("SST2")


def test_quotation_marks_are_plain_characters(tmp_path: Path) -> None:
    write(tmp_path, "RTE", "dev", HEAD + '0\t"He said\t" no "\tentailment\n1\ta\tb\tentailment\n')
    data = load_glue(tmp_path, "RTE", "dev")
    assert data.first == ('"He said', "a")
    assert data.second == ('" no "', "b")


def test_only_a_line_feed_ends_a_row(tmp_path: Path) -> None:
    write(tmp_path, "SST-2", "dev", "sentence\tlabel\none\u2028two\x0bthree\x85 \t1\n")
    assert load_glue(tmp_path, "SST-2", "dev").first == ("one\u2028two\x0bthree\x85 ",)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_both_line_ends_are_taken(end: str, tmp_path: Path) -> None:
    write(tmp_path, "SST-2", "dev", f"sentence\tlabel{end}good\t1{end}bad\t0{end}")
    assert load_glue(tmp_path, "SST-2", "dev").labels.tolist() == [1, 0]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    write(tmp_path, "SST-2", "dev", "\ufeffsentence\tlabel\ngood\t1\n")
    assert load_glue(tmp_path, "SST-2", "dev").first == ("good",)


def test_a_gzipped_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "glue" / "SST-2" / "train.tsv.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress("sentence\tlabel\nübel\t0\n".encode()))
    assert load_glue(tmp_path, "SST-2", "train").first == ("übel",)


def test_cola_has_no_line_of_names(tmp_path: Path) -> None:
    write(tmp_path, "CoLA", "dev", "gj04\t1\t\tFirst.\ngj04\t0\t*\tSecond.\n")
    data = load_glue(tmp_path, "CoLA", "dev")
    assert (data.first, data.second) == (("First.", "Second."), None)
    assert data.labels.tolist() == [1, 0]


def test_mnli_columns_are_found_by_name(tmp_path: Path) -> None:
    row = "0\tfiction\tone\ttwo\tneutral\tcontradiction\n"
    write(tmp_path, "MNLI", "dev_matched", MNLI_HEAD + row)
    data = load_glue(tmp_path, "MNLI", "dev_matched")
    assert (data.first, data.second, data.labels.tolist()) == (("one",), ("two",), [2])


def test_scores_are_floats(tmp_path: Path) -> None:
    write(tmp_path, "STS-B", "dev", "sentence1\tsentence2\tscore\na\tb\t3.800\n")
    labels = load_glue(tmp_path, "STS-B", "dev").labels
    assert (labels.dtype, labels.tolist()) == (np.float32, [np.float32(3.8)])


def test_broken_rows_of_qqp_are_left_out(tmp_path: Path) -> None:
    head = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    write(tmp_path, "QQP", "dev", head + "1\t1\t2\ta\tb\t1\n2\t1\t2\tbroken\n3\t1\t2\tc\td\t0\n")
    assert load_glue(tmp_path, "QQP", "dev").first == ("a", "c")


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("RTE", HEAD + "0\ta\tb\tentailment\n1\ta\n", r"dev\.tsv, line 3: 2 columns, too few"),
        ("RTE", HEAD + "0\ta\tb\tmaybe\n", r"dev\.tsv, line 2: label must be one of .*'maybe'"),
        ("RTE", "a\tb\n0\t1\n", r"dev\.tsv, line 1: there is no column 'sentence1'"),
        ("RTE", HEAD, r"dev\.tsv has no rows"),
        ("RTE", "", r"dev\.tsv, line 1: there is no column"),
        ("STS-B", "sentence1\tsentence2\tscore\na\tb\t5.1\n", r"score must be in \[0, 5\].*5\.1"),
        ("STS-B", "sentence1\tsentence2\tscore\na\tb\tnan\n", r"score must be in \[0, 5\].*nan"),
        ("STS-B", "sentence1\tsentence2\tscore\na\tb\t\n", r"score must be in \[0, 5\], got ''"),
    ],
)
def test_what_cannot_be_read_is_said_with_file_and_line(
    task: str, text: str, message: str, tmp_path: Path
) -> None:
    write(tmp_path, task, "dev", text)
    with pytest.raises(ValueError, match=message):
        load_glue(tmp_path, task, "dev")


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    write(tmp_path, "SST-2", "dev", "").write_bytes(b"sentence\tlabel\n\xff\t1\n")
    with pytest.raises(ValueError, match=r"dev\.tsv is not UTF-8"):
        load_glue(tmp_path, "SST-2", "dev")


def test_a_cut_off_gzip_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "SST-2", "dev", "").with_suffix(".tsv.gz")
    path.with_suffix("").unlink()
    path.write_bytes(gzip.compress(b"sentence\tlabel\n" + b"good\t1\n" * 1000)[:-20])
    with pytest.raises(ValueError, match=r"dev\.tsv\.gz is damaged or incomplete"):
        load_glue(tmp_path, "SST-2", "dev")


@pytest.mark.parametrize("task", TASKS)
def test_a_missing_task_is_said_with_its_file_and_source(task: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        load_glue(tmp_path, task, "train")
    for part in (str(Path(task) / "train.tsv"), TASKS[task].archive, "--data-dir"):
        assert part in str(caught.value)


def test_an_unknown_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="split must be one of 'train', 'dev_matched'"):
        load_glue(tmp_path, "MNLI", "dev")
