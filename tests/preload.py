"""Imported once by the fork server, so that ranks start with everything loaded."""

import sklearn.datasets  # noqa: F401
import torch

import sampa
import sampa.train.loop  # noqa: F401

torch.set_num_threads(1)
