"""The nine tasks of GLUE, from tab-separated files.

A. Wang et al., "GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language
Understanding", ICLR 2019. A file is UTF-8; a quotation mark in it is a character like any other.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sampa.lab.data.archives import LARGEST_ARCHIVE, reading
from sampa.lab.data.places import data_folder, first_of
from sampa.lab.files import read_file
from sampa.messages import require_choice, unknown

ColumnKey = str | int
"""A column by its name in the first line; by its place where there is no such line."""


@dataclass(frozen=True)
class GlueTask:
    """One task.

    Attributes:
        name: As GLUE writes it; also the folder.
        sentences: The columns that are read, one or two.
        label: The column to predict.
        classes: What stands in that column, in the order of the labels; empty for regression.
        metrics: What GLUE reports.
        archive: The official file.
        development: Its labeled splits other than train.
        drops_broken_rows: Whether rows with missing columns are left out, as everybody does for QQP
            (whose file has a few); elsewhere they are errors.
    """

    name: str
    sentences: tuple[ColumnKey, ...]
    label: ColumnKey
    classes: tuple[str, ...]
    metrics: tuple[str, ...]
    archive: str
    development: tuple[str, ...] = ("dev",)
    drops_broken_rows: bool = False

    @property
    def is_regression(self) -> bool:
        return not self.classes

    @property
    def num_labels(self) -> int:
        """Outputs of a model: one per class, or one number."""
        return len(self.classes) or 1

    @property
    def splits(self) -> tuple[str, ...]:
        return ("train", *self.development)


PAIR = ("sentence1", "sentence2")
BINARY, ENTAILMENT = ("0", "1"), ("entailment", "not_entailment")
INFERENCE = ("entailment", "neutral", "contradiction")
ACCURACY, ACCURACY_F1 = ("accuracy",), ("accuracy", "f1")
MRPC_SOURCE = "Microsoft's paraphrase corpus, split by GLUE's dev_ids.tsv"
MNLI_SPLITS = ("dev_matched", "dev_mismatched")
MAX_SCORE = 5.0  # of STS-B

TASKS = {
    task.name: task
    for task in (
        GlueTask("CoLA", (3,), 1, BINARY, ("matthews",), "CoLA.zip"),
        GlueTask("SST-2", ("sentence",), "label", BINARY, ACCURACY, "SST-2.zip"),
        GlueTask("MRPC", ("#1 String", "#2 String"), "Quality", BINARY, ACCURACY_F1, MRPC_SOURCE),
        GlueTask("STS-B", PAIR, "score", (), ("pearson", "spearman"), "STS-B.zip"),
        GlueTask(
            "QQP",
            ("question1", "question2"),
            "is_duplicate",
            BINARY,
            ACCURACY_F1,
            "QQP-clean.zip",
            drops_broken_rows=True,
        ),
        GlueTask("MNLI", PAIR, "gold_label", INFERENCE, ACCURACY, "MNLI.zip", MNLI_SPLITS),
        GlueTask("QNLI", ("question", "sentence"), "label", ENTAILMENT, ACCURACY, "QNLIv2.zip"),
        GlueTask("RTE", PAIR, "label", ENTAILMENT, ACCURACY, "RTE.zip"),
        GlueTask("WNLI", PAIR, "label", BINARY, ACCURACY, "WNLI.zip"),
    )
}


@dataclass(frozen=True)
class TextData:
    """Labeled sentences, or pairs of them.

    Attributes:
        first: The sentence, or the first of each pair.
        second: The second of each pair; None where there is but one.
        labels: int64 classes, or float32 scores.
        classes: The names that labels stand for, if the data itself tells them.
    """

    first: tuple[str, ...]
    second: tuple[str, ...] | None
    labels: np.ndarray
    classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: np.ndarray) -> TextData:
        """Only these samples, in this order."""
        first, second = (
            None if texts is None else tuple(texts[i] for i in index)
            for texts in (self.first, self.second)
        )
        return replace(self, first=first, second=second, labels=self.labels[index])


def find_task(name: str) -> GlueTask:
    """A task by its name, in any case.

    Raises:
        ValueError: Naming the nearest tasks.
    """
    by_lower = {task.lower(): task for task in TASKS}
    if name.lower() not in by_lower:
        raise ValueError(unknown("task", name, TASKS))
    return TASKS[by_lower[name.lower()]]


def load_glue(data_dir: str | Path | None, task: str, split: str = "train") -> TextData:
    """One split of a task.

    Args:
        data_dir: A folder with GLUE's folders (CoLA/train.tsv, ...; also .tsv.gz), directly or
            under glue/. None means SAMPA_DATA_DIR.
        task: Its name.
        split: "train" or "dev"; for MNLI "dev_matched" or "dev_mismatched".

    Raises:
        FileNotFoundError: Saying what was looked for and where to get it.
        ValueError: Naming file and line of what cannot be read.
    """
    spec = find_task(task)
    require_choice("split", split, spec.splits)
    folder = data_folder(data_dir)
    names = [f"{root}{spec.name}/{split}.tsv{end}" for root in ("glue/", "") for end in ("", ".gz")]
    what, source = f"GLUE's {spec.name} ({split})", f"{spec.archive} of GLUE"
    path = first_of([folder / name for name in names], what, source)
    rows = list(_rows(spec, path))
    if not rows:
        raise ValueError(f"{path} has no rows")
    *sentences, labels = zip(*rows, strict=True)
    dtype = np.float32 if spec.is_regression else np.int64
    second = sentences[1] if len(sentences) == 2 else None
    return TextData(sentences[0], second, np.asarray(labels, dtype))


def _rows(spec: GlueTask, path: Path) -> Iterator[tuple[str | float, ...]]:
    lines = _lines(path)
    wanted: list[ColumnKey] = [*spec.sentences, spec.label]
    columns = _columns(path, wanted, lines)
    for number, line in lines:
        fields = line.split("\t")
        if len(fields) <= max(columns):
            if spec.drops_broken_rows:
                continue
            raise ValueError(f"{path}, line {number}: {len(fields)} columns, too few: {line!r}")
        *sentences, label = (fields[column] for column in columns)
        yield *sentences, _label(spec, label, f"{path}, line {number}")


def _columns(path: Path, wanted: list[ColumnKey], lines: Iterator[tuple[int, str]]) -> list[int]:
    """The places of the wanted columns; reads the line of names where there is one."""
    places = [column for column in wanted if isinstance(column, int)]
    if places:
        return places
    names = next(lines, (1, ""))[1].split("\t")
    lost = [column for column in wanted if column not in names]
    if lost:
        raise ValueError(f"{path}, line 1: there is no column {lost[0]!r} among {names}")
    return [names.index(str(column)) for column in wanted]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with reading(path):
        content = read_file(path, LARGEST_ARCHIVE)
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    try:
        text = content.decode("utf-8-sig")  # with or without a byte-order mark
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from error
    for number, line in enumerate(text.split("\n"), 1):  # other line breaks are text
        if line.removesuffix("\r"):
            yield number, line.removesuffix("\r")


def _label(spec: GlueTask, text: str, where: str) -> float:
    """The label as a number: the place among the classes, or the score."""
    if not spec.is_regression:
        if text not in spec.classes:
            raise ValueError(f"{where}: label must be one of {spec.classes}, got {text!r}")
        return spec.classes.index(text)
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not 0 <= score <= MAX_SCORE:
        raise ValueError(f"{where}: score must be in [0, {MAX_SCORE:g}], got {text!r}")
    return score
