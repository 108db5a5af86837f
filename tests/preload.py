"""Imported once by the fork server, so that ranks start with everything loaded."""

import gc
from importlib import import_module

import torch

for name in (
    "hypothesis",  # with pytest, what files of tests import: a rank imports the one of its function
    "pytest",
    "torch._dynamo",  # torch imports it with the first optimizer
    "torch.distributed.checkpoint",
    "sampa",
    "sampa.lab.training.loop",
    "tests.variants",
):
    import_module(name)

torch.set_num_threads(1)
gc.freeze()  # a rank that looked through all this for garbage would copy it, page by page
