"""Imported once by the fork server, so that ranks start with everything loaded."""

from importlib import import_module

import torch

for name in (
    "sklearn.datasets",
    "torch._dynamo",  # torch imports it with the first optimizer
    "sampa",
    "sampa.lab.training.loop",
):
    import_module(name)

torch.set_num_threads(1)
