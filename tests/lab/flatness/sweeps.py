"""What a sweep found, with numbers that are easy to check by hand."""

from __future__ import annotations

from typing import Any

from sampa.lab.conditions import Conditions
from sampa.lab.flatness.outcome import Found, MeasuredModel
from sampa.lab.flatness.settings import SweepSettings

LEVELS = {"sgd": 3.0, "sam": 1.0, "<b>": 2.0}
KINDS = ("accuracy", "sharpness", "plane", "line", "path", "triangle", "density")


def found(seeds: int = 3, points: int = 3) -> Found:
    """Three methods: the flatter, the better."""
    axis = [-1 + 2 * i / (points - 1) for i in range(points)]
    subjects: list[MeasuredModel] = []
    values: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for method, size in LEVELS.items():
        for seed in range(seeds):
            name = f"toy {method} seed {seed}"
            subjects.append(MeasuredModel(name, "toy", method, seed))
            values["accuracy"][name] = [90 - size - 0.1 * seed]
            values["sharpness"][name] = [size + 0.1 * seed, size + 0.3 * seed]
            grid = [[size + x * x + y * y for y in axis] for x in axis]
            values["plane"][name] = {"x": axis, "y": axis, "loss": grid}
            values["line"][name] = {"x": [-1.0, 0.0, 1.0], "loss": [2.0, size, 2.0]}
            values["density"][name] = {"nodes": [[0.0, size]], "weights": [[0.9, 0.1]]}
    start, *others = (f"toy {method} seed 0" for method in LEVELS)
    ends = {"sgd": [0.0], "sam": [1.0]}
    path = {"x": [-0.5, 0.0, 0.5, 1.0, 1.5], "loss": [9.0, 3.0, 4.0, 1.0, 9.0], "marks": ends}
    values["path"][f"{start} → {others[0]}"] = {**path, "barrier": 2.0}
    corners = {"sgd": [-1.0, 0.0], "sam": [0.0, 1.0], "<b>": [0.5, 0.5]}
    values["triangle"][f"{start} → {' → '.join(others)}"] = {
        **values["plane"][start],
        "marks": corners,
    }
    costs = dict.fromkeys(KINDS, 5.33) | {"accuracy": 0.0}
    conditions = Conditions({"commit": "abc"})
    return Found(SweepSettings(), subjects, values, costs, conditions, "sampa flatness")
