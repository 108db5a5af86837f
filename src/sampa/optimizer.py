"""SharpnessAware: a torch optimizer that joins a base optimizer, a method and an executor."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from sampa import torch_private
from sampa.batches import Watched
from sampa.closures import closure_of, initialized
from sampa.execution import loss_scaling
from sampa.execution.evaluate import Evaluator, Excursions, LossFn, StepFn
from sampa.execution.executor import Executor
from sampa.execution.guarded import Checks, LateChecks, uninterrupted
from sampa.execution.joint import Bases, as_one
from sampa.execution.layers import Layers
from sampa.execution.lookahead import (
    bases_of,
    clear_gradients,
    lookahead,
    momentum,
    parameters_of,
    set_gradients,
)
from sampa.execution.profiling import UPDATE
from sampa.execution.randomness import Seeds, derive_seed
from sampa.execution.serial import default_executor
from sampa.loss import Closure
from sampa.messages import refuse_attribute, require, require_group, require_shardable
from sampa.method import (
    HELD,
    INCOMING,
    BaseView,
    Context,
    Hyperparameters,
    Method,
    ModelView,
    Move,
    Rho,
    Update,
    radius,
    vectors_of,
)
from sampa.options import Options
from sampa.record import Carried, Journal, MadeStep, Progress, StepRecord
from sampa.resuming import Resumable
from sampa.samples import batch_size
from sampa.vectors.random import RandomNumbers
from sampa.vectors.vector import Vector, Weights, add, local, scale


class SharpnessAware(Resumable):
    """A base optimizer whose gradient comes from a sharpness-aware method.

    Outside `step` the weights are always x_t. `param_groups` and `state` are the base's own, so
    that a scheduler may be attached to either.

    Args:
        base: Makes the update from one gradient: any torch optimizer, or a list of several that
            train different parameters, which step as one.
        method: Which gradient.
        **options: The fields of `sampa.Options`.

    Examples:
        >>> import sampa
        >>> model = torch.nn.Linear(2, 1)
        >>> base = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = sampa.SAM(base, rho=0.05)
        >>> loss = optimizer.step(lambda x: model(x).square().mean(), torch.ones(4, 2))
        >>> optimizer.last.rounds
        2
    """

    def __init__(self, base: Bases, method: Method, **options: Any) -> None:
        self.base = as_one(base)
        self.options = Options.of(options, sys._getframe(1).f_code)
        self.method = method
        self.executor: Executor = self.options.executor or default_executor()
        self._made: MadeStep | None = None  # the last step
        self._set_up()
        for group in self.param_groups:
            radius(self._rho(group), 0)
        require_shardable(self.executor.is_sharded, method, self.options.sync_perturbation)
        self.executor.adopt(self._weights(), self._settings())
        seed = torch.initial_seed() if self.options.seed is None else int(self.options.seed)
        progress = Progress(seed=self.executor.agree_on(seed))
        self._carried = Carried(progress, self._weights(), method.initial_state())

    def _set_up(self) -> None:
        """Make what is not copied with an optimizer."""
        # What torch's constructor does, except making groups and state: those are the base's.
        Optimizer.__setstate__(self, {"defaults": self.base.defaults})
        self._excursions = Excursions(self.executor.forget_copies)
        self._layers = Layers(self.executor.module)
        self._checks = Checks()
        if self.options.checks == "late":
            self._checks = LateChecks(self.base, self.method, self._layers)

    # ---- one step ----------------------------------------------------------------------------

    @torch_private.outside_of_graphs
    @uninterrupted
    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        loss_fn: StepFn = None,
        batch: Any = None,
        *,
        closure: StepFn = None,
        in_parts: bool = False,
    ) -> Tensor:
        """Make one update.

        Args:
            loss_fn: From a batch to the scalar loss with its graph; sampa calls backward. It may be
                called several times, and on several ranks with different batches. Or a
                `sampa.Closure`, which calls backward itself.
            batch: The next batch, as the loader yields it.
            closure: In place of both, as in torch: it zeroes the gradients, runs forward and
                backward and returns the loss. For methods that evaluate one whole batch.
            in_parts: Whether `batch` is a list of micro-batches. `loss_fn` is called with one after
                the other; losses and gradients add up, so it weights them itself.

        Returns:
            The loss on this batch at the unperturbed weights (where the method evaluates them).

        Raises:
            RuntimeError: If too many steps in a row had a gradient that is not finite, or the
                method cannot work with a closure.
        """
        if batch is None or not callable(loss_fn) or isinstance(loss_fn, Closure) or closure:
            if loss_fn is batch is closure is None and initialized(self.base):
                return torch.zeros(())
            loss_fn = closure_of(loss_fn, batch, closure, self.method, self.options, self.base)
        carried = self._carried
        incoming = Watched(batch, in_parts=in_parts)
        held = carried.receive(incoming, self.method.holds_batch, self.options.hold)
        weights, journal = carried.align(self._weights(), lambda: self.last), Journal()
        self._checks.begin(carries_state=carried.method_state is not None)
        with torch.no_grad(), self.executor.at_hand():
            evaluator = self._evaluator(weights, loss_fn, incoming, in_parts)
            update = self._run_method(weights, evaluator, journal)
            numbers = journal.numbers(self.executor.doubts())
            made = MadeStep(
                numbers,
                is_bad=self._checks.flag(numbers.is_bad),
                fallback=self.method.after_skip(carried.method_state),
                updated=update.gradient is not None,
                rounds=journal.rounds,
                outputs=evaluator.outputs.chosen(),
            )
        if update.gradient is not None:
            with UPDATE, self.executor.at_hand():
                self._apply(update.gradient, update, weights, made)
        self._carry_on(made, update, held)
        if made.updated and self._carried.progress.updates == 1:
            self.executor.warn_if_idle(journal.widest_round)
        return journal.reported_loss()

    def _run_method(self, weights: list[Tensor], evaluator: Evaluator, journal: Journal) -> Update:
        """Let the method yield rounds and answer them."""
        context = self._context(weights, evaluator)
        rounds = self.method.rounds(journal.begun(context), self._carried.method_state)
        try:
            probes = next(rounds)
            while True:
                answers = self.executor.answer(probes, journal.passes, evaluator)
                journal.note(probes, answers, evaluator)
                probes = rounds.send([answer.gradient for answer in answers])
        except StopIteration as finished:
            return finished.value

    def _apply(self, gradient: Vector, update: Update, weights: Weights, made: MadeStep) -> None:
        """x_{t+1} = ModelUpdate_{m_t}(x_t, G_t), if all gradients are finite."""
        gradient = self._clipped(gradient)
        if update.unclipped is not None:
            gradient = add(gradient, update.unclipped)
        # It may be written to: by the base, or by the user's own zero_grad(set_to_none=False).
        if gradient.shares_memory_with(vectors_of(update.state)):
            gradient = gradient.clone()
        set_gradients(weights, gradient)
        self._checks.update(made.is_bad, made.is_finite, self.base, weights, update.then)

    def _carry_on(self, made: MadeStep, update: Update, held: Watched | None) -> None:
        """Advance the counters and the state, then look whether that was right."""
        carried = self._carried
        carried.advance(made, update.state, held)
        # A batch without an update is still a step to a scheduler on the base, which would warn.
        for base in bases_of(self.base):
            setattr(base, torch_private.STEP_CALLED, True)
        if self.options.scaler is not None:
            loss_scaling.report(self.options.scaler, made.is_bad)
        earlier, self._made = self._made, made
        if self._checks.is_late and earlier is not None:
            self._learn(earlier, later=made)
        made.held_loss = carried.progress.held_loss
        if not self._checks.is_late:
            self._learn(made)

    def _learn(self, made: MadeStep, later: MadeStep | None = None) -> None:
        """Read a step's numbers, if that was not done, and go back if a gradient was bad."""
        if made.is_dropped is not None:
            return
        try:
            self._carried.learn(made, later, self.options.max_skips)
        finally:
            if made.is_dropped:
                clear_gradients(self._weights())
                self._checks.go_back()

    @property
    def last(self) -> StepRecord | None:
        """The last step in a few numbers. With `checks="late"`, looking at them waits for them."""
        if self._made is None:
            return None
        self._learn(self._made)
        return self._made.record(self._carried.progress)

    # ---- what a step is made of --------------------------------------------------------------

    def _weights(self) -> list[Tensor]:
        return parameters_of(self.base)

    def _context(self, weights: list[Tensor], evaluator: Evaluator) -> Context:
        p, batch = self._carried.progress, evaluator.batches[INCOMING].batch
        return Context(
            t=p.updates,
            epoch=p.epoch,
            x=local(weights),
            groups=Hyperparameters.of(
                self.param_groups, self._rho, p.updates, self.options.perturb_eps
            ),
            base=BaseView(self._lookahead, lambda: momentum(self.base, weights)),
            model=ModelView(lambda: self._layers.describe(weights), self._layers.float_buffers),
            random=RandomNumbers(derive_seed(p.seed, "direction", p.calls), weights),
            batch_size=lambda: batch_size(batch, in_parts=evaluator.in_parts),
        )

    def _rho(self, group: dict[str, Any]) -> Rho:
        """A group's own radius, or the method's. (Adadelta has an option of its own called rho.)"""
        own = {} if "rho" in self.base.defaults else group
        return own.get("rho", self.method.rho)

    def _lookahead(self, g: Vector) -> Move:
        """Peek, with g clipped as the gradient of a real step is."""
        return lookahead(self.base, self._clipped(g))

    def _clipped(self, g: Vector) -> Vector:
        most = self.options.max_norm
        return g if most is None else scale(g, (most / g.norm).clamp(max=1))

    def _evaluator(
        self, weights: list[Tensor], loss_fn: LossFn, batch: Watched, in_parts: bool
    ) -> Evaluator:
        p = self._carried.progress
        return Evaluator(
            loss_fn=loss_fn,
            batches={INCOMING: batch, HELD: self._carried.held_batch or Watched(None)},
            weights=weights,
            layers=self._layers,
            excursions=self._excursions,
            seed_of=Seeds(p.seed, p.calls, self.executor.data_rank, self.options.same_noise),
            accumulate=self.options.accumulate,
            in_parts=in_parts,
            scaler=self.options.scaler,
            step=p.calls,
            sync_perturbation=self.options.sync_perturbation,
        )

    # ---- what users may ask and tell ---------------------------------------------------------

    @property
    def saved_copies(self) -> int:
        """How many copies of the weights there were at once: 0 if no probe moved them."""
        return self._excursions.copies

    def set_epoch(self, epoch: int) -> None:
        """Tell methods that work by epochs (SAF, MESA, SparseSAM) which one begins."""
        require("epoch", epoch, epoch >= 0, ">= 0")
        self._carried.progress = dataclasses.replace(self._carried.progress, epoch=epoch)

    # ---- the base's groups and state, whatever replaces them: loading gives the base new ones --

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.base.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.base.param_groups = groups

    @property
    def state(self) -> Any:
        return self.base.state

    @state.setter
    def state(self, state: Any) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.base.state = state

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        require_group(param_group)
        self.base.add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.base.zero_grad(set_to_none)

    # ---- copying -----------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        # Hooks and a scheduler's patched `step` stay behind, as with torch's own optimizers.
        _ = self.last  # what is still on its way belongs to the state
        names = ("base", "method", "options", "executor", "_made", "_carried")
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_up()

    def __getattr__(self, name: str) -> Any:
        refuse_attribute(type(self).__name__, name)

    def __repr__(self) -> str:
        return f"SharpnessAware({self.method}, base={self.base})"
