"""What `loss_fn` may be, and what it may return besides a scalar.

Most methods only need the loss. Those that change the loss or the samples ask for more: return
`sampa.Loss(value, logits=z, targets=y)` and they find it in that. Objectives are functions of it.

A probe asks for the gradient of a loss at some weights. `loss_fn` gives the loss, and sampa
differentiates it; a `Closure` leaves the gradient in `.grad`. That is all that differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Loss:
    """A loss together with what some methods need to know about it.

    Attributes:
        value: The scalar training loss with its graph. May be left out if `per_sample` is given.
        per_sample: The loss of each sample (reduction="none"); its mean is the loss.
        logits: One row of class scores per sample.
        targets: The class of each sample.
        index: The number of each sample in the data set, the same in every epoch.
        outputs: Whatever else is to be kept of the clean pass, in any nest: it is found, detached,
            in `optimizer.last.outputs`.
    """

    value: Tensor | None = None
    per_sample: Tensor | None = None
    logits: Tensor | None = None
    targets: Tensor | None = None
    index: Tensor | None = None
    outputs: Any = None

    def need(self, who: str, *names: str) -> list[Tensor]:
        """The named fields.

        Raises:
            ValueError: Naming what is missing and how to provide it.
        """
        missing = [name for name in names if getattr(self, name) is None]
        if missing:
            shown = ", ".join(f"{name}=..." for name in names)
            raise ValueError(
                f"{who} needs {' and '.join(missing)} from loss_fn, got only "
                f"{', '.join(f.name for f in fields(self) if getattr(self, f.name) is not None)}; "
                f"write `return sampa.Loss(loss, {shown})`"
            )
        return [getattr(self, name) for name in names]

    def detached(self) -> Loss:
        """The same numbers without their graph."""
        return self.each(Tensor.detach)

    def each(self, function: Callable[[Tensor], Tensor]) -> Loss:
        """The function's results in place of the tensors that were given, outputs left out."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "outputs"}
        return Loss(**{name: t if t is None else function(t) for name, t in given.items()})


@dataclass(frozen=True)
class Closure:
    """A function of a batch that runs forward and backward itself and returns the loss.

    For frameworks, which call backward in a way of their own: `step(Closure(function), batch)`
    calls it with the batch of each probe, so that methods that hold a batch (SAMPa) take it too,
    and resume with it. Gradients are None when it is called. It cannot serve methods that
    differentiate another loss or choose samples.

    Attributes:
        function: From a batch to its loss, a scalar or a `sampa.Loss`. With `scaler=` it
            differentiates `scaler.scale(loss)`.
    """

    function: Callable[[Any], Any]

    def __call__(self, batch: Any) -> Any:
        return self.function(batch)


Objective = Callable[[Loss], Tensor]
"""A scalar to differentiate, in place of the training loss."""
