"""What an optimizer has for saving a run and going on with it."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

from sampa import state_dict as saving
from sampa import torch_private
from sampa.batches import Watched
from sampa.execution.executor import Executor
from sampa.execution.lookahead import parameters_of
from sampa.extra_state import ExtraState, Parts, batch_key, with_vectors, without_vectors
from sampa.method import Method
from sampa.options import Options
from sampa.record import Carried, MadeStep, StepRecord


class Resumable(Optimizer):
    """The part of `sampa.SharpnessAware` that saves and loads."""

    base: Optimizer
    method: Method
    options: Options
    executor: Executor
    _carried: Carried
    _made: MadeStep | None  # the last step
    _parts = Parts()  # of a run that is being loaded

    @property
    def last(self) -> StepRecord | None:
        """The last step in a few numbers."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """The base's state dictionary, with everything of the method under the key "sampa".

        With several data ranks each rank holds its own shard of the batch: save it on every rank,
        or leave it out (`save_batch=False`) and hand it back. The vectors of a sharded model are
        with the parameters they belong to, where torch's distributed checkpoint finds them; what
        it leaves out is in `extra_state`.
        """
        for hook in torch_private.hooks_of(self, torch_private.BEFORE_SAVING):
            hook(self)
        ours, state = self._saved(), self.base.state_dict()
        if self.executor.is_sharded:
            state = with_vectors(state, self._carried, self.method)
        state["sampa"] = ours
        for hook in torch_private.hooks_of(self, torch_private.AFTER_SAVING):
            state = hook(self, state) or state
        return state

    def load_state_dict(self, state_dict: dict[str, Any], *, allow_changes: bool = False) -> None:
        """Go on exactly where the saved run was.

        Args:
            state_dict: From `state_dict` of the same method, on any number of branches.
            allow_changes: Accept that hyper-parameters differ from the saved ones.

        Raises:
            ValueError: If the state does not belong here. Nothing was changed then.
        """
        for hook in torch_private.hooks_of(self, torch_private.BEFORE_LOADING):
            state_dict = hook(self, state_dict) or state_dict
        vectors, ours = {}, None
        if self.executor.is_sharded:
            state_dict, vectors = without_vectors(state_dict)
        if not self.executor.is_sharded or "sampa" in state_dict:
            ours = saving.checked(state_dict, None if allow_changes else self._settings())
        parts = self._parts.joined(Parts(vectors, ours))
        carried = parts.carried(self.method, parameters_of(self.base), self.options)
        self.base.load_state_dict({k: v for k, v in state_dict.items() if k != "sampa"})
        self._go_on(parts, carried)
        for hook in torch_private.hooks_of(self, torch_private.AFTER_LOADING):
            hook(self)

    def extra_state(self, *, batch: bool = True, allow_changes: bool = False) -> ExtraState:
        """What torch's distributed checkpoint leaves out of a sharded optimizer: a `Stateful`.

        Counters, seed, the scaler's state and the held batch. Save and load it together with
        `get_optimizer_state_dict` and `set_optimizer_state_dict`; a step after one without the
        other is refused.

        Args:
            batch: Whether the held batch is saved or loaded, each data rank's own. To load on
                another number of data ranks leave it out, and hand one back with `hold`.
            allow_changes: Accept that hyper-parameters differ from the saved ones.
        """
        mesh = self.executor.mesh
        if mesh is None or not self.executor.is_sharded:
            raise ValueError(
                "extra_state is for models sharded by fully_shard, got a whole one; save and load "
                "optimizer.state_dict(), which has everything"
            )
        holds = batch and self.method.holds_batch and self.options.save_batch
        key = batch_key(self.executor.data_rank, mesh.size(1)) if holds else None

        def load(saved: dict[str, Any]) -> None:
            ours = saving.checked({"sampa": saved}, None if allow_changes else self._settings())
            parts = self._parts.joined(Parts(extra=ours))
            weights = parameters_of(self.base)
            self._go_on(parts, parts.carried(self.method, weights, self.options))

        return ExtraState(self._saved, load, key)

    def hold(self, batch: Any) -> None:
        """Hand back the held batch after loading a state that was saved without it."""
        if not self.method.holds_batch:
            raise ValueError("this method holds no batch between steps; leave out the call of hold")
        self._carried.held_batch = Watched(batch).kept(self.options.hold)

    def _settings(self) -> dict[str, Any]:
        return saving.settings(self.base, self.method, self.options)

    def _saved(self) -> dict[str, Any]:
        """All that is not the base optimizer's, at this moment."""
        _ = self.last  # what is still on its way belongs to the state
        self._carried.align(parameters_of(self.base), lambda: self.last)
        vectors = not self.executor.is_sharded  # else with their parameters
        return saving.saved(self._carried, self._settings(), self.options, vectors=vectors)

    def _go_on(self, parts: Parts, carried: Carried) -> None:
        self._parts = Parts() if carried.missing is None else parts
        self._carried, self._made = carried, None
        scaler, extra = self.options.scaler, parts.extra
        if scaler is not None and extra is not None and extra["scaler"]:  # empty if disabled
            scaler.load_state_dict(extra["scaler"])
