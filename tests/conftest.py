"""Settings for every test: one thread, because the number of threads changes the bits of a sum."""

import torch
from hypothesis import settings

torch.set_num_threads(1)

# `make test` draws few examples, `make test-slow` (--hypothesis-profile slow) five times as many.
# No deadline: a busy machine is slow, and that is no fault of the code.
settings.register_profile("quick", max_examples=40, deadline=None)
settings.register_profile("slow", max_examples=200, deadline=None)
settings.load_profile("quick")
