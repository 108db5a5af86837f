"""Imported once by the fork server, so that ranks start with everything loaded."""

import torch

import sampa  # noqa: F401

torch.set_num_threads(1)
