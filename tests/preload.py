"""Imported once by the fork server, so that ranks start with everything loaded."""

import sklearn.datasets  # noqa: F401
import torch
import torch._dynamo  # torch imports it with the first optimizer

import sampa
import sampa.lab.training.loop  # noqa: F401

torch.set_num_threads(1)
