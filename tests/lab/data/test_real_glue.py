"""The real GLUE files, as published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sampa.lab.data.glue import TASKS, TextData, load_glue

COUNTS = {
    "CoLA": (8551, 1043),
    "RTE": (2490, 277),
    "MRPC": (3668, 408),
    "WNLI": (635, 71),
    "STS-B": (5749, 1500),
    "SST-2": (67349, 872),
}


def load(real_data: Path, task: str, split: str) -> TextData:
    if not (real_data / "glue" / task).is_dir():
        pytest.skip(f"needs GLUE's {task}: SAMPA_DATA_DIR has no folder glue/{task}")
    return load_glue(real_data, task, split)


@pytest.mark.parametrize("task", COUNTS)
def test_a_task_has_as_many_rows_as_published(task: str, real_data: Path) -> None:
    assert tuple(len(load(real_data, task, split)) for split in ("train", "dev")) == COUNTS[task]


@pytest.mark.parametrize("task", COUNTS)
def test_all_classes_occur_in_training(task: str, real_data: Path) -> None:
    labels = np.unique(load(real_data, task, "train").labels)
    if TASKS[task].is_regression:
        assert (labels.min(), labels.max()) == (0, 5)
    else:
        assert labels.tolist() == list(range(TASKS[task].num_labels))


def test_a_sentence_with_one_quotation_mark_stays_intact(real_data: Path) -> None:
    data = load(real_data, "MRPC", "dev")
    assert data.second is not None
    assert data.second[0] == (
        '" The foodservice pie business does not fit our long-term growth strategy .'
    )


def test_rte_starts_with_no_entailment(real_data: Path) -> None:
    data = load(real_data, "RTE", "dev")
    assert data.first[0].startswith("Dana Reeve, the widow")
    assert data.labels[0] == 1
