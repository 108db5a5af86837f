"""Whether something else averages gradients between branches, found by its effect.

Probes of a round have equal gradients where a wrapper in `loss_fn` or a hook averages them, which
no look at the model tells. They may be equal by right too: at ρ = 0 on equal batches, or where the
loss is linear in the weights. So equal gradients are a suspicion, and one more pass decides.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from torch import Tensor
from torch.utils.hooks import RemovableHandle

from sampa.batches import Watched
from sampa.execution.evaluate import Evaluator, Pass
from sampa.execution.lookahead import set_gradients
from sampa.execution.parallel.agreement import BatchMark
from sampa.execution.parallel.groups import Groups, everyone
from sampa.loss import Closure, Loss
from sampa.method import Probe


class ForeignAveraging:
    """Decides about a suspicion, once.

    Attributes:
        is_ruled_out: Whether it was found that equal gradients are equal by right.
    """

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self.is_ruled_out = False

    def examine(self, probe: Probe, number: int, evaluator: Evaluator, around: Pass) -> None:
        """Differentiate another multiple of the loss on each branch; all ranks call it.

        Gradients that each rank keeps are then different, with another sign if not of another
        length. Those that something averages are equal again.

        Args:
            probe: What this rank answered.
            number: Its number in the step.
            evaluator: Of that step.
            around: Keeps our own exchange out of the pass.

        Raises:
            RuntimeError: If they are.
        """
        if self.is_ruled_out:
            return
        factor = (-0.5) ** self._groups.branch
        mode = dataclasses.replace(probe.mode, statistics=False)
        rehearsal = dataclasses.replace(probe, mode=mode, wrt=None)
        hooks: list[RemovableHandle] = []
        if isinstance(evaluator.loss_fn, Closure):  # which differentiates by itself
            trained = [p for p in evaluator.weights if p.requires_grad]
            hooks = [p.register_hook(lambda g: factor * g) for p in trained]
        else:
            objective = partial(_objective, probe, factor)
            rehearsal = dataclasses.replace(rehearsal, objective=objective)
        # Whatever has become of the batch since it was used: any will do.
        batches = {probe.batch: Watched(evaluator.batches[probe.batch].batch)}
        evaluator = dataclasses.replace(evaluator, batches=batches)
        waiting = [p.grad for p in evaluator.weights]
        try:
            evaluator.backward(rehearsal, number, around)
            gradient = evaluator.taken()
        finally:
            set_gradients(evaluator.weights, waiting)
            for hook in hooks:
                hook.remove()
        mark = BatchMark(gradient.present).value(gradient.norm)
        found = everyone((gradient.norm.item(), mark.item()))
        if all(0 < norm < float("inf") for norm, _ in found):
            self._decide(found, self._groups.data_ranks)

    def _decide(self, found: list[Any], data_ranks: int) -> None:
        """Branch by branch: what data ranks have of their own may differ between them."""
        branches = [found[i : i + data_ranks] for i in range(0, len(found), data_ranks)]
        if any(branch != branches[0] for branch in branches):
            self.is_ruled_out = True
            return
        raise RuntimeError(
            f"step {self._groups.step}: something else averages gradients: those of different "
            "probes are equal bit for bit on all branches, whatever each of them differentiates; "
            "call executor.model in loss_fn as it is, without DistributedDataParallel or another "
            "wrapper around it, and remove gradient hooks that talk to other ranks: sampa averages "
            "over data ranks, and keeps branches apart"
        )


def _objective(probe: Probe, factor: float, loss: Loss) -> Tensor:
    value = loss.value if probe.objective is None else probe.objective(loss)
    assert value is not None
    return factor * value
