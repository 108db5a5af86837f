"""Every private name of torch that sampa uses; the rest of the package gets them here.

Such names may change in any release of torch. Each is listed below with the reason for its use and
the releases that it was checked in; `tests/test_torch_private.py` checks that the running torch has
them all, and that no other module uses one.

One family is used where it is needed, because equations read better: `torch._foreach_*`, the
operations on lists of tensors that torch.optim itself is made of (checked in the same releases).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._profiler import _RecordFunctionFast
from torch._subclasses import FakeTensor as FakeTensor
from torch._subclasses import FakeTensorMode as FakeTensorMode
from torch._utils import _flatten_dense_tensors
from torch.amp.grad_scaler import GradScaler
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._pytree import tree_leaves as tree_leaves

CHECKED_IN = ("2.10.0", "2.13.0", "2.15.0")
"""The releases that all of these were checked in."""

PRIVATE = {
    "torch._foreach_*": "one call for the operation on all tensors of a vector",
    "torch._disable_dynamo": "torch.compiler.disable would import the compiler with the library",
    "torch._utils._flatten_dense_tensors": "joins tensors of any shapes in one call",
    "torch._C._profiler._RecordFunctionFast": "costs nothing where no profiler runs",
    "torch._C._storage_Use_Count": "tells whether another tensor shares a gradient's memory",
    "torch.UntypedStorage._cdata": "what that function takes; the same for views of one memory",
    "torch.Tensor._version": "tells that a tensor was written to, without looking at it",
    "torch._dynamo": "is loaded if and only if something may be compiled",
    "torch._inductor.cudagraph_trees": "is loaded if and only if a compiled model uses CUDA graphs",
    "torch.amp.GradScaler._get_scale_async": "get_scale waits for the device",
    "torch.nn.Module._buffers": "named_buffers takes a third of a millisecond for 100 layers",
    "torch.nn.Module._modules": "modules() takes as long, and every pass looks for new layers",
    "torch.nn.modules.batchnorm._BatchNorm": "what BatchNorm1d, 2d, 3d and SyncBatchNorm share",
    "torch.nn.modules.instancenorm._InstanceNorm": "what InstanceNorm1d, 2d and 3d share",
    "torch.optim.optimizer._global_optimizer_pre_hooks": "a lookahead is not a step: no hook runs",
    "torch.optim.optimizer._global_optimizer_post_hooks": "the same",
    "torch.optim.SGD._optimizer_step_pre_hooks": "the same, for hooks of one optimizer",
    "torch.optim.SGD._optimizer_step_post_hooks": "the same",
    "torch.optim.SGD._optimizer_state_dict_pre_hooks": "an optimizer around another runs its own",
    "torch.optim.SGD._optimizer_state_dict_post_hooks": "the same",
    "torch.optim.SGD._optimizer_load_state_dict_pre_hooks": "the same",
    "torch.optim.SGD._optimizer_load_state_dict_post_hooks": "the same",
    "torch.optim.SGD._step_supports_amp_scaling": "tells whether a step can be called off",
    "torch.optim.SGD._opt_called": "a scheduler warns if it is not set after a batch",
    "torch.Tensor._indices": "the public one refuses a sparse tensor that is not coalesced",
    "torch.Tensor._values": "the same",
    "torch._subclasses.FakeTensor": "what these are made of",
    "torch._subclasses.FakeTensorMode": "tensors of a device that this machine lacks, for bench",
    "torch.utils._python_dispatch.TorchDispatchMode": "sees each operation, for bench",
    "torch.utils._pytree.tree_leaves": "the tensors in its arguments",
    "torch.ops.aten.add.Tensor._schema": "which of its arguments it writes to",
}
"""Why each is used. Those of optimizers and modules are attributes of instances."""

BatchNormLayer = _BatchNorm
InstanceNormLayer = _InstanceNorm
RecordFunction = _RecordFunctionFast
flatten_tensors: Callable[[Sequence[Tensor]], Tensor] = _flatten_dense_tensors
outside_of_graphs = torch._disable_dynamo
buffers_in: Callable[[nn.Module], dict[str, Tensor | None]] = attrgetter("_buffers")
children_in: Callable[[nn.Module], dict[str, nn.Module | None]] = attrgetter("_modules")
write_count: Callable[[Tensor], int] = attrgetter("_version")  # none in inference mode
storage_address: Callable[[torch.UntypedStorage], int] = attrgetter("_cdata")

STEP_CALLED = "_opt_called"
TAKES_FOUND_INF = "_step_supports_amp_scaling"
STEP_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
BEFORE_SAVING = "_optimizer_state_dict_pre_hooks"
AFTER_SAVING = "_optimizer_state_dict_post_hooks"
BEFORE_LOADING = "_optimizer_load_state_dict_pre_hooks"
AFTER_LOADING = "_optimizer_load_state_dict_post_hooks"
HOOKS = (*STEP_HOOKS, BEFORE_SAVING, AFTER_SAVING, BEFORE_LOADING, AFTER_LOADING)
GLOBAL_STEP_HOOKS = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")


def uses_cuda_graphs() -> bool:
    """Whether a compiled model of this process runs as CUDA graphs."""
    return "torch._inductor.cudagraph_trees" in sys.modules


def has_compiler() -> bool:
    """Whether the compiler was imported: nothing is compiled without it."""
    return "torch._dynamo" in sys.modules


def has_shared_memory(tensor: Tensor) -> bool:
    """Whether another tensor uses the same memory."""
    storage = tensor.untyped_storage()
    return torch._C._storage_Use_Count(storage._cdata) > 2  # the tensor's, and `storage`


def storage_key(tensor: Tensor) -> int:
    """The same number for all tensors that are parts of the same memory."""
    return storage_address(tensor.untyped_storage())


def version_of(tensor: Tensor) -> int | None:
    """How often a tensor was written to; None for one made in inference mode: it has no count."""
    return None if tensor.is_inference() else write_count(tensor)


def shared_in_copies(tensors: Iterable[Tensor]) -> dict[str, dict[int, Any]]:
    """For `copy.deepcopy`'s memo: views of these tensors' memory stay views of it."""
    storages = [t.untyped_storage() for t in tensors]
    return {"torch": {s._cdata: s for s in storages}}


def parts_of_sparse(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """The indices and values of a sparse tensor in coordinate format."""
    return tensor._indices(), tensor._values()


def declared_arguments(operation: Any) -> list[Any]:
    """The arguments in the schema of an operation, such as torch.ops.aten.add.Tensor."""
    return operation._schema.arguments


def hooks_of(outer: Optimizer, moment: str) -> Iterable[Callable[..., Any]]:
    """The hooks to run at one of the moments above."""
    return getattr(outer, moment).values()


def scale_on_device(scaler: GradScaler) -> Tensor | None:
    """The scale without waiting for the device; None before the first loss was scaled."""
    return scaler._get_scale_async()
