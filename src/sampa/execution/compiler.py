"""Compiled models and CUDA graphs inside `loss_fn`; `step` itself is left alone by the compiler.

A CUDA graph writes its results to the same memory each time that it runs. A step makes several
passes and needs the gradients of all of them, so what outlives its pass is copied.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sampa.torch_private import has_shared_memory, uses_cuda_graphs


def begin_pass() -> None:
    """Tell CUDA graphs of torch.compile that the results of the pass before may be overwritten.

    Without CUDA graphs it does nothing: the call below would import the compiler.
    """
    if uses_cuda_graphs():
        torch.compiler.cudagraph_mark_step_begin()


def outliving(tensor: Tensor) -> Tensor:
    """The tensor, or its copy if the next pass may overwrite its memory.

    torch.compile with mode="reduce-overhead" does not tell which tensors are in its graphs' memory:
    once it is used in a process, everything on a GPU is copied. The memory of a graph by
    torch.cuda.make_graphed_callables is known by its second owner, the graph.
    """
    is_at_risk = tensor.is_cuda and (uses_cuda_graphs() or has_shared_memory(tensor))
    return tensor.clone() if is_at_risk else tensor
