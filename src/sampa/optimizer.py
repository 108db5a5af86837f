"""SharpnessAware: a torch optimizer that joins a base optimizer, a method and an executor."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from sampa import state_dict as states
from sampa.batches import batch_size
from sampa.execution import loss_scaling as scaling
from sampa.execution.evaluate import Answer, Evaluator, LossFn
from sampa.execution.excursions import Excursions
from sampa.execution.executor import Executor
from sampa.execution.layers import Layers
from sampa.execution.lookahead import (
    clear_gradients,
    lookahead,
    momentum,
    parameters_of,
    set_gradients,
)
from sampa.execution.profiling import marked
from sampa.execution.randomness import derive_seed
from sampa.execution.serial import default_executor
from sampa.messages import (
    SCHEMA,
    Rho,
    checked_schema,
    described,
    radius,
    require,
    require_base,
    require_call,
    require_known,
    require_same_settings,
)
from sampa.method import (
    HELD,
    INCOMING,
    BaseView,
    Context,
    Hyperparameters,
    Method,
    ModelView,
    Move,
    Probe,
    Update,
)
from sampa.options import Options
from sampa.record import Journal, Progress, StepRecord, refuse_endless_skipping
from sampa.vectors.vector import Vector, Weights, scale
from sampa.wrapper import Wrapper


class SharpnessAware(Wrapper):
    """A base optimizer whose gradient comes from a sharpness-aware method.

    Outside `step` the weights are always x_t.

    Example:
        >>> import sampa
        >>> model = torch.nn.Linear(2, 1)
        >>> base = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = sampa.SAM(base, rho=0.05)
        >>> loss = optimizer.step(lambda x: model(x).square().mean(), torch.ones(4, 2))
        >>> optimizer.last.rounds
        2
    """

    def __init__(
        self,
        base: Optimizer,
        method: Method,
        *,
        executor: Executor | None = None,
        max_norm: float | None = None,
        accumulate: int = 1,
        scaler: GradScaler | None = None,
        perturb_eps: float = 1e-12,
        same_noise: bool = False,
        seed: int | None = None,
        save_batch: bool = True,
        max_skips: int = 100,
        sync_perturbation: bool = True,
        **misspelled: Any,
    ) -> None:
        require_known(misspelled, Options.__annotations__)
        require_base(base)
        require("accumulate", accumulate, accumulate >= 1, ">= 1")
        require("max_norm", max_norm, max_norm is None or max_norm > 0, "> 0 or None")
        require("perturb_eps", perturb_eps, 0 <= perturb_eps < math.inf, ">= 0 and finite")
        require("max_skips", max_skips, max_skips >= 1, ">= 1")
        super().__init__(base)
        self.method = method
        self.executor: Executor = default_executor() if executor is None else executor
        self.max_norm = max_norm
        self.accumulate = accumulate
        self.scaler = scaler
        self.perturb_eps = perturb_eps
        self.same_noise = same_noise
        self.save_batch = save_batch
        self.max_skips = max_skips
        self.sync_perturbation = sync_perturbation
        self.last: StepRecord | None = None
        self._method_state: Any = method.initial_state()
        self._held_batch: Any = None
        self._setup()
        for group in self.param_groups:
            radius(self._rho(group), 0)
        self.executor.adopt(self._weights(), self._settings())
        seed = torch.initial_seed() if seed is None else int(seed)
        self._progress = Progress(seed=self.executor.agree_on(seed))

    def _setup(self) -> None:
        """What is not copied with an optimizer, and made anew."""
        self._excursions = Excursions()
        self._layers = Layers(self.executor.module)

    # ---- one step ----------------------------------------------------------------------------

    def step(self, loss_fn: LossFn | None = None, batch: Any = None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Make one update.

        Args:
            loss_fn: From a batch to the scalar loss with its graph; sampa calls backward. It may be
                called several times, and on several ranks with different batches.
            batch: The next batch, as the loader yields it.

        Returns:
            The loss on this batch at the unperturbed weights (where the method evaluates them).

        Raises:
            RuntimeError: If too many steps in a row had a gradient that is not finite.
        """
        require_call(loss_fn, batch, self.scaler)
        assert loss_fn is not None
        weights = self._weights()
        if self.method.holds_batch and self._progress.calls > 0 and self._held_batch is None:
            raise RuntimeError(
                "the held batch is missing: it was left out of state_dict (save_batch=False); "
                "hand it back with optimizer.hold(batch) before the next step"
            )
        journal = Journal()
        with torch.no_grad():
            evaluator = self._evaluator(weights, loss_fn, batch)
            update = self._run_method(weights, evaluator, journal)
            journal.compare_gradients()
        if update is not None and update.gradient is not None:
            with marked("update"):
                self._apply(update.gradient, update, weights)
        self._finish(update, batch, journal)
        return journal.reported_loss()

    @property
    def saved_copies(self) -> int:
        """How many copies of the weights there were at once: 0 if no probe moved them."""
        return self._excursions.copies

    def set_epoch(self, epoch: int) -> None:
        """Tell methods that work by epochs (SAF, MESA, SparseSAM) which one begins."""
        require("epoch", epoch, epoch >= 0, ">= 0")
        self._progress = dataclasses.replace(self._progress, epoch=epoch)

    def hold(self, batch: Any) -> None:
        """Hand back the held batch after loading a state that was saved without it."""
        if not self.method.holds_batch:
            raise ValueError("this method holds no batch between steps; leave out the call of hold")
        self._held_batch = batch

    def _run_method(
        self, weights: list[Tensor], evaluator: Evaluator, journal: Journal
    ) -> Update | None:
        """Let the method yield rounds and answer them; None if a gradient is not finite."""
        context = self._context(weights, evaluator.batches[INCOMING])
        state = states.aligned(self._method_state, weights)
        rounds = self.method.rounds(context, state)
        try:
            probes = next(rounds)
            while True:
                answers = self.executor.answer(probes, journal.passes, evaluator)
                gradients = self._unscaled(answers)
                journal.note(probes, answers, gradients)
                # A local gradient is this rank's alone: what is decided by it must not differ.
                pairs = zip(gradients, probes, strict=True)
                if not all(g.is_finite or evaluator.is_local(probe) for g, probe in pairs):
                    rounds.close()
                    return None
                probes = rounds.send(gradients)
        except StopIteration as finished:
            return finished.value

    def _apply(self, gradient: Vector, update: Update, weights: Weights) -> None:
        """x_{t+1} = ModelUpdate_{m_t}(x_t, G_t)."""
        gradient = self._clipped(gradient)
        if gradient.shares_memory_with(states.vectors_of(update.state)):
            gradient = gradient.clone()  # a base optimizer may write into its gradients
        set_gradients(weights, gradient)
        self.base.step()
        if update.then is not None:
            with torch.no_grad():
                update.then(weights)

    def _finish(self, update: Update | None, batch: Any, journal: Journal) -> None:
        """Advance the counters and the state; nothing before this point changed them."""
        skipped = update is None
        updated = update is not None and update.gradient is not None
        p = self._progress
        if self.scaler is not None:
            scaling.report(self.scaler, overflow=skipped, device=self._weights()[0].device)
        self._method_state = (
            self.method.after_skip(self._method_state) if update is None else update.state
        )
        sharpness = journal.sharpness(p.held_loss)
        held_loss = journal.clean_losses.get(INCOMING, math.nan)
        self._held_batch = batch if self.method.holds_batch else None
        self._progress = dataclasses.replace(
            p,
            calls=p.calls + 1,
            updates=p.updates + updated,
            skips=p.skips + skipped,
            skips_in_a_row=p.skips_in_a_row + 1 if skipped else 0,
            held_loss=held_loss if self.method.holds_batch else math.nan,
        )
        self.last = journal.record(self._progress, sharpness, updated=updated, skipped=skipped)
        # A batch without an update is still a step to a scheduler on the base, which would warn.
        self.base._opt_called = True  # pyright: ignore[reportAttributeAccessIssue]
        if skipped:
            clear_gradients(self._weights())
            refuse_endless_skipping(self._progress, self.last, self.max_skips)
        if updated and p.updates == 0:
            self.executor.warn_if_idle(journal.widest_round)

    # ---- what a step is made of --------------------------------------------------------------

    def _weights(self) -> list[Tensor]:
        return parameters_of(self.base)

    def _context(self, weights: list[Tensor], batch: Any) -> Context:
        t = self._progress.updates
        return Context(
            t=t,
            epoch=self._progress.epoch,
            x=weights,
            groups=Hyperparameters(
                rho=self._per_tensor(lambda group: radius(self._rho(group), t)),
                lr=self._per_tensor(lambda group: float(group["lr"])),
                weight_decay=self._per_tensor(lambda group: float(group.get("weight_decay", 0))),
                eps=self.perturb_eps,
            ),
            base=BaseView(self._lookahead, lambda: momentum(self.base, weights)),
            model=ModelView(lambda: self._layers.describe(weights), self._layers.float_buffers),
            generator=self._generator,
            batch_size=lambda: batch_size(batch),
        )

    def _rho(self, group: dict[str, Any]) -> Rho:
        """A group's own radius, or the method's. (Adadelta has an option of its own called rho.)"""
        own = {} if "rho" in self.base.defaults else group
        return own.get("rho", self.method.rho)

    def _per_tensor(self, value: Callable[[dict[str, Any]], float]) -> list[float]:
        """A group's number, repeated for each of its parameters."""
        return [v for group in self.param_groups for v in [value(group)] * len(group["params"])]

    def _lookahead(self, g: Vector) -> Move:
        """Peek, with g clipped as the gradient of a real step is."""
        return lookahead(self.base, self._clipped(g))

    def _generator(self) -> torch.Generator:
        p = self._progress
        return torch.Generator().manual_seed(derive_seed(p.seed, "direction", p.calls))

    def _evaluator(self, weights: list[Tensor], loss_fn: LossFn, batch: Any) -> Evaluator:
        return Evaluator(
            loss_fn=loss_fn,
            batches={INCOMING: batch, HELD: self._held_batch},
            weights=weights,
            layers=self._layers,
            seed_of=self._seed_of,
            excursions=self._excursions,
            accumulate=self.accumulate,
            scaler=self.scaler,
            devices=frozenset(p.device for p in weights),
            step=self._progress.calls,
            sync_perturbation=self.sync_perturbation,
        )

    def _seed_of(self, probe: Probe, number: int) -> int:
        """Dropout's seed: the probe's, or its batch's if both passes are to see the same noise."""
        p, shard = self._progress, self.executor.data_rank
        if self.same_noise:
            batch_number = p.calls - (probe.batch is HELD)
            return derive_seed(p.seed, "batch", batch_number, shard)
        return derive_seed(p.seed, "probe", p.calls, number, shard)

    def _unscaled(self, answers: Sequence[Answer]) -> list[Vector]:
        factor = scaling.factor(self.scaler)
        return [a.gradient if factor == 1.0 else scale(a.gradient, 1 / factor) for a in answers]

    def _clipped(self, g: Vector) -> Vector:
        if self.max_norm is None or g.norm <= self.max_norm:
            return g
        return scale(g, self.max_norm / g.norm)

    # ---- saving, loading, copying ------------------------------------------------------------

    def _settings(self) -> dict[str, Any]:
        """What must not change between saving and loading, or between ranks."""
        options = {"max_norm": self.max_norm, "accumulate": self.accumulate}
        fields = {
            f.name: described(getattr(self.method, f.name))
            for f in dataclasses.fields(self.method)  # pyright: ignore[reportArgumentType]
        }
        return {
            "method": type(self.method).__name__,
            "base": type(self.base).__name__,
            "perturb_eps": self.perturb_eps,
            "same_noise": self.same_noise,
            **options,
            **fields,
        }

    def state_dict(self) -> dict[str, Any]:
        """The base's state dictionary, with everything of the method under the key "sampa".

        With several data ranks each rank holds its own shard of the batch: save it on every rank,
        or leave it out (`save_batch=False`) and hand it back.
        """
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        state = self.base.state_dict()
        state["sampa"] = {
            "schema": SCHEMA,
            "settings": self._settings(),
            "progress": dataclasses.asdict(self._progress),
            "method_state": states.pack(self._method_state),
            "held_batch": self._held_batch if self.save_batch else None,
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
        }
        for hook in self._optimizer_state_dict_post_hooks.values():
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
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = hook(self, state_dict) or state_dict
        saved = checked_schema(state_dict)
        if not allow_changes:
            require_same_settings(saved["settings"], self._settings())
        method_state = states.unpack(
            self.method.initial_state(), saved["method_state"], self._weights()
        )
        self.base.load_state_dict({k: v for k, v in state_dict.items() if k != "sampa"})
        self._method_state = method_state
        self._progress = Progress(**saved["progress"])
        self._held_batch = saved["held_batch"]
        self.last = None
        if self.scaler is not None and saved["scaler"]:  # empty if it was disabled
            self.scaler.load_state_dict(saved["scaler"])
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def __getstate__(self) -> dict[str, Any]:
        # Hooks and a scheduler's patched `step` stay behind, as with torch's own optimizers.
        return {k: v for k, v in self.__dict__.items() if k in _COPIED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._adopt_base()
        self._setup()

    def __repr__(self) -> str:
        return f"SharpnessAware({self.method}, base={self.base})"


_COPIED = {
    *("base", "method", "executor", "max_norm", "accumulate", "scaler", "perturb_eps"),
    *("same_noise", "save_batch", "max_skips", "last", "_method_state", "_held_batch", "_progress"),
    "sync_perturbation",
}
