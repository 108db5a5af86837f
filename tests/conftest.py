"""Settings for every test: one thread, because the number of threads changes the bits of a sum."""

import torch

torch.set_num_threads(1)
