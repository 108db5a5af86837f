"""The training loop, to be read from top to bottom."""

from __future__ import annotations

import inspect
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import sampa
from sampa.batches import map_tensors
from sampa.catalog import Factory
from sampa.names import ALIASES, find_method
from sampa.noise import derive_seed
from sampa.survey import probes_per_round
from sampa.train import checkpoint
from sampa.train.checkpoint import CheckpointError
from sampa.train.folder import RunFolder
from sampa.train.models import build
from sampa.train.progress import Display
from sampa.train.ranks import any_rank, is_first, rank, wait_for_all, world_size
from sampa.train.run import Run, set_rate
from sampa.train.tasks import Task, open_task


class Interrupted(Exception):
    """The run was asked to stop; it saved, and can be resumed."""

    def __init__(self, signal_number: int, step: int) -> None:
        super().__init__(f"stopped at batch {step}")
        self.signal_number = signal_number


@dataclass(frozen=True)
class Settings:
    """How a run is carried out; none of it changes the result.

    Attributes:
        out: The run's folder.
        data_dir: Where data sets are.
        resume: Go on with what is in the folder.
        limit_steps: Stop after this many batches (to try things out).
        save_every: Batches between checkpoints; None saves at the end of each epoch.
        keep: How many checkpoints stay.
        device: Where the model is.
        tensorboard: Also write TensorBoard curves.
        quiet: Say nothing while it works.
    """

    out: Path
    data_dir: Path | None = None
    resume: bool = False
    limit_steps: int | None = None
    save_every: int | None = None
    keep: int = 2
    device: str = "cpu"
    tensorboard: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class Place:
    """Where a run is: saved with each checkpoint, and all that the loop itself remembers.

    Attributes:
        position: Batches seen since the beginning.
        updates: Updates made of them.
        loss_sum: Sum of the losses of this epoch.
        best_score: The best validation score ...
        best_epoch: ... and its epoch.
        seconds: Time spent, over all sessions.
    """

    position: int = 0
    updates: int = 0
    loss_sum: float = 0.0
    best_score: float = float("-inf")
    best_epoch: int = -1
    seconds: float = 0.0


@dataclass
class Clock:
    """Where the time of an epoch went."""

    began: float = field(default_factory=time.perf_counter)
    data: float = 0.0
    steps: float = 0.0

    def __post_init__(self) -> None:
        self._lap_began = self.began

    def lap(self) -> float:
        """Seconds since the last lap."""
        now = time.perf_counter()
        seconds, self._lap_began = now - self._lap_began, now
        return seconds

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        setattr(self, part, getattr(self, part) + time.perf_counter() - start)


def train(run: Run, settings: Settings) -> dict[str, Any]:
    """Carry out a run, from its beginning or from its last checkpoint.

    Returns:
        The result that is also in result.json.

    Raises:
        Interrupted: If a signal asked it to stop; a checkpoint was saved.
    """
    factory = checked_method(run)
    folder = RunFolder(settings.out)
    try:
        if is_first():
            for warning in folder.open(run, resume=settings.resume):
                print(f"warning: {warning}", flush=True)
        finished = folder.read("result.json") if settings.resume else None
        return finished or Trainer(run, settings, folder, factory).fit()
    finally:
        folder.close()


class Trainer:
    """One run in one process (of one or several that work together)."""

    def __init__(self, run: Run, settings: Settings, folder: RunFolder, factory: Factory) -> None:
        self.run, self.settings, self.folder = run, settings, folder
        epochs = run.base_epochs if run.method in BASE_NAMES and run.base_epochs else run.epochs
        self.epochs = epochs
        branches = min(probes_per_round(factory), world_size())
        self.data_ranks = world_size() // branches
        # The mesh puts data ranks next to each other: rank = branch * data ranks + data rank.
        shard = rank() % self.data_ranks
        self.task: Task = open_task(run, settings.data_dir, shard=shard, shards=self.data_ranks)
        torch.manual_seed(derive_seed(run.seed, "model"))
        self.model = build(run.model.name, **run.model.options, **self.task.model_options())
        self.model.to(settings.device)
        network: nn.Module = torch.compile(self.model) if run.compile else self.model  # pyright: ignore[reportAssignmentType]
        self.executor = sampa.distribute(network, branches=branches)
        self.scaler = torch.amp.GradScaler(settings.device) if run.amp == "fp16" else None
        self.optimizer = factory(
            run.base.build(self.model),
            **method_options(run, factory, len(self.task.batches) * epochs),
            executor=self.executor,
            max_norm=run.max_norm,
            scaler=self.scaler,
            seed=derive_seed(run.seed, "noise in the model"),
            save_batch=False,  # batches are a pure function of their number
        )
        self.place = Place()
        self.hits = 0.0

    # ---- the loop ----------------------------------------------------------------------------

    def fit(self) -> dict[str, Any]:
        self._resume()
        per_epoch = len(self.task.batches)
        total = per_epoch * self.epochs
        if self.settings.limit_steps is not None:
            total = min(total, self.settings.limit_steps)
        with self._display(total) as display, stop_signals() as asked:
            clock = Clock()
            for position in range(self.place.position, total):
                epoch, number = divmod(position, per_epoch)
                lr = self.run.base.lr * self.run.schedule.factor(position, per_epoch, self.epochs)
                set_rate(self.optimizer, lr)
                self.optimizer.set_epoch(epoch)
                with clock.timed("data"):
                    batch = self._batch(position)
                with clock.timed("steps"):
                    loss = self.optimizer.step(self._loss, batch).item()
                assert self.optimizer.last is not None
                self.place = replace(
                    self.place,
                    position=position + 1,
                    updates=self.optimizer.last.step,
                    loss_sum=self.place.loss_sum + loss,
                    seconds=self.place.seconds + clock.lap(),
                )
                display.advance(
                    self.place.loss_sum / (number + 1),
                    self.hits,
                    lr,
                    self.run.batch_size / max(clock.steps / (number + 1), 1e-9),
                )
                stop = any_rank(bool(asked))
                if number + 1 == per_epoch:
                    self._end_epoch(epoch, lr, clock, display)
                    clock = Clock()
                if stop or self._save_is_due(position + 1, per_epoch, total):
                    self._save(display)
                if stop:
                    wait_for_all()  # who leaves first makes the launcher end the others
                    raise Interrupted(asked[0] if asked else signal.SIGTERM, position + 1)
        return self._finish(limited=total < per_epoch * self.epochs)

    def _display(self, total: int) -> Display:
        label = f"{self.run.name} {self.run.method} seed {self.run.seed}"
        shown = is_first() and not self.settings.quiet
        return Display(total, self.place.position, label, shown=shown)

    def _batch(self, position: int) -> Any:
        epoch, number = divmod(position, len(self.task.batches))
        batch = self.task.batches.batch(epoch, number)
        return map_tensors(lambda t: t.to(self.settings.device), batch)

    def _loss(self, batch: Any) -> sampa.Loss:
        kind = torch.device(self.settings.device).type
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.run.amp or "")
        with torch.autocast(kind, dtype, enabled=dtype is not None):
            loss = self.task.loss(self.executor.model, batch)
        if loss.logits is not None and loss.targets is not None and loss.logits.shape[1] > 1:
            right = (loss.logits.detach().argmax(1) == loss.targets).float().mean().item()
            self.hits = 0.9 * self.hits + 10 * right  # a running percentage, for the display only
        return loss

    def _end_epoch(self, epoch: int, lr: float, clock: Clock, display: Display) -> None:
        scores = self._evaluate("validation")
        score = scores[self.task.metric]
        seconds = time.perf_counter() - clock.began
        train_loss = self.place.loss_sum / len(self.task.batches)
        if score > self.place.best_score and self._save_best(display):
            self.place = replace(self.place, best_score=score, best_epoch=epoch)
        self.place = replace(self.place, loss_sum=0.0, seconds=self.place.seconds + clock.lap())
        assert self.optimizer.last is not None
        last = self.optimizer.last
        self._record(
            {
                "epoch": epoch,
                "step": last.step,
                "lr": lr,
                "train_loss": train_loss,
                "sharpness": last.sharpness,
                "cosine": last.cosine,
                "skips": last.skips,
                **{f"validation_{name}": value for name, value in scores.items()},
            }
        )
        share = 100 * clock.data / max(clock.data + clock.steps, 1e-9)
        display.say(
            f"epoch {epoch + 1}/{self.epochs}  loss {train_loss:.4f}  "
            f"validation {self.task.metric} {score:.2f}  lr {lr:.4f}  {seconds:.1f} s  "
            f"data {share:.1f} %  left {display.eta(self.place.position)}"
        )

    def _finish(self, *, limited: bool) -> dict[str, Any]:
        """Judge the chosen model on the test data, and write the result."""
        last = self._evaluate("test")
        chosen = last
        if self.run.select == "best" and self.place.best_epoch >= 0:
            self.model.load_state_dict(self._best_model())
            chosen = self._evaluate("test")
        result = {
            "test": chosen,
            "test_last": last,
            "best_epoch": self.place.best_epoch,
            "best_validation": self.place.best_score,
            "seconds": self.place.seconds,
            "updates": self.place.updates,
            "limited": limited,
        }
        if is_first() and not limited:
            self.folder.write("result.json", result)
        return result

    def _evaluate(self, split: str) -> dict[str, float]:
        self.executor.model.eval()
        scores = self.task.evaluate(self.model, split)
        self.executor.model.train()
        return scores

    # ---- saving and resuming -----------------------------------------------------------------

    def _save_is_due(self, position: int, per_epoch: int, total: int) -> bool:
        every = self.settings.save_every or per_epoch
        return position % every == 0 or position == total

    def _save(self, display: Display) -> None:
        self.executor.sync_buffers()
        if not is_first():
            return
        place = self.place
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loop": {
                "place": asdict(place),
                "metrics_size": self.folder.metrics_size(),
                "data_ranks": self.data_ranks,
            },
        }
        name = f"step-{place.position:09}"
        try:
            checkpoint.save(self.folder.checkpoints, name, place.position, state)
            checkpoint.prune(self.folder.checkpoints, "step-", self.settings.keep)
            checkpoint.prune(self.folder.checkpoints, "best-", 1)
        except OSError as error:
            display.say(f"warning: {error}; training goes on")

    def _save_best(self, display: Display) -> bool:
        """Save the model as the best so far; whether the disk took it, the same on all ranks."""
        self.executor.sync_buffers()
        failed = False
        if is_first():
            position, state = self.place.position, {"model": self.model.state_dict()}
            try:
                checkpoint.save(self.folder.checkpoints, f"best-{position:09}", position, state)
            except CheckpointError as error:
                display.say(f"warning: {error}; the best model before it stays the best")
                failed = True
        return not any_rank(failed)

    def _best_model(self) -> dict[str, torch.Tensor]:
        """The weights of the model that is reported.

        Raises:
            CheckpointError: If they are damaged: another model's score would be no answer.
        """
        position = (self.place.best_epoch + 1) * len(self.task.batches)
        try:
            return checkpoint.load(self.folder.checkpoints / f"best-{position:09}").state["model"]
        except CheckpointError as error:
            raise CheckpointError(
                f"{error}; it is the model to be reported: remove {self.folder.checkpoints} and "
                "resume, which trains again from the beginning"
            ) from error

    def _resume(self) -> None:
        found = checkpoint.newest(self.folder.checkpoints, "step-", self._warn)
        if found is None or not self.settings.resume:
            if is_first():
                self.folder.cut_metrics(0)
            return
        before = found.state["loop"]
        self.place = Place(**before["place"])
        if is_first():
            self.folder.cut_metrics(before["metrics_size"])
        if before["data_ranks"] != self.data_ranks:
            self._warn(
                f"each batch is now cut into {self.data_ranks} part(s), before it was "
                f"{before['data_ranks']}: the result will differ in the last bits, and more with "
                "BatchNorm, from that of an uninterrupted run"
            )
        self.model.load_state_dict(found.state["model"])
        self.optimizer.load_state_dict(found.state["optimizer"])
        if self.optimizer.method.holds_batch and self.place.position > 0:
            self.optimizer.hold(self._batch(self.place.position - 1))

    def _record(self, line: dict[str, Any]) -> None:
        if not is_first():
            return
        self.folder.append(line)
        if self.settings.tensorboard:
            write_curves(self.folder.path / "tensorboard", line)

    def _warn(self, text: str) -> None:
        if is_first():
            print(f"warning: {text}", flush=True)


BASE_NAMES = ("base", "sgd", "adamw", "adam")


def checked_method(run: Run) -> Factory:
    """The method of a run, tried with its hyper-parameters before anything is begun.

    Raises:
        ValueError: If the method is not known or does not take them.
    """
    factory = find_method(run.method)
    base = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=run.base.lr)
    factory(base, **method_options(run, factory, total_steps=1), executor=sampa.Serial())
    return factory


def method_options(run: Run, factory: Factory, total_steps: int) -> dict[str, Any]:
    """The method's hyper-parameters: its defaults, the recipe's, and the command line's."""
    accepted = inspect.signature(factory).parameters
    options = dict(run.method_options)
    for name in (ALIASES.get(run.method, run.method), run.method):
        if name in run.rhos:
            options["rho"] = run.rhos[name]
    if run.rho is not None:
        options["rho"] = run.rho
    if run.lam is not None:
        options["lam"] = run.lam
    if "total_steps" in accepted:
        options.setdefault("total_steps", total_steps)
    strange = [name for name in options if name not in accepted]
    if strange:
        known = ", ".join(name for name in accepted if name not in ("base", "options"))
        raise ValueError(
            f"method {run.method} has no hyper-parameter {strange[0]}; it has {known or 'none'}"
        )
    return options


def write_curves(folder: Path, line: dict[str, Any]) -> None:
    """One epoch's numbers for TensorBoard."""
    from torch.utils.tensorboard.writer import SummaryWriter

    with SummaryWriter(folder, purge_step=line["epoch"]) as writer:
        for name, value in line.items():
            if isinstance(value, int | float) and name != "epoch":
                writer.add_scalar(name, value, line["epoch"])


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Notice SIGINT and SIGTERM instead of dying of them; a second SIGINT does kill."""
    asked: list[int] = []

    def notice(number: int, _frame: Any) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)

    before = {s: signal.signal(s, notice) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
