"""The training loop, to be read from top to bottom."""

from __future__ import annotations

import signal
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import sampa
from sampa.batches import map_tensors
from sampa.catalog import Factory
from sampa.cost import probes_per_round
from sampa.execution.randomness import derive_seed
from sampa.lab.models import build
from sampa.lab.training.checkpoint import CheckpointError
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.method import checked_method, epochs_of, method_options
from sampa.lab.training.progress import Display
from sampa.lab.training.ranks import (
    any_rank,
    is_first,
    rank,
    require_same_place,
    wait_for_all,
    world_size,
)
from sampa.lab.training.run import Run, set_rate
from sampa.lab.training.saving import Checkpoints
from sampa.lab.training.session import (
    Clock,
    Interrupted,
    Place,
    Settings,
    stop_signals,
    told_where,
)
from sampa.lab.training.tasks import Task, open_task


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
            open_folder(run, settings, folder)
        finished = folder.read("result.json") if settings.resume else None
        return finished or Trainer(run, settings, folder, factory).fit()
    finally:
        folder.close()


def open_folder(run: Run, settings: Settings, folder: RunFolder) -> None:
    """Claim the folder; say what is not as it was, or refuse it if that was asked for."""
    warnings = folder.open(run, resume=settings.resume, allow_changes=settings.allow_changes)
    if warnings and settings.strict:
        raise ValueError(f"{warnings[0]}; leave out --strict to go on all the same")
    for warning in warnings:
        print(f"warning: {warning}", flush=True)


class Trainer:
    """One run in one process (of one or several that work together)."""

    def __init__(self, run: Run, settings: Settings, folder: RunFolder, factory: Factory) -> None:
        self.run, self.settings, self.folder = run, settings, folder
        self.checkpoints = Checkpoints(folder, settings.keep)
        self.epochs = epochs_of(run)
        branches = min(probes_per_round(factory), world_size())
        self.data_ranks = world_size() // branches
        # The mesh puts data ranks next to each other: rank = branch * data ranks + data rank.
        shard = rank() % self.data_ranks
        self.task: Task = open_task(run, settings.data_dir, shard=shard, shards=self.data_ranks)
        torch.manual_seed(derive_seed(run.seed, "model"))
        self.model = build(run.model.name, **run.model.options, **self.task.model_options())
        self.model.to(settings.device)
        network: nn.Module = torch.compile(self.model) if run.compile else self.model  # pyright: ignore[reportAssignmentType]
        self.executor = sampa.distribute(network, branches=branches, timeout=settings.timeout)
        self.scaler = torch.amp.GradScaler(settings.device) if run.amp == "fp16" else None
        self.optimizer = factory(
            run.base.build(self.model),
            **method_options(run, factory, len(self.task.batches) * self.epochs),
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
        with self.display(total) as display, stop_signals() as asked:
            clock = Clock()
            for position in range(self.place.position, total):
                with told_where(rank(), position):
                    self.train_batch(position, clock, display)
                    stop = any_rank(bool(asked))
                    if (position + 1) % per_epoch == 0:
                        self._end_epoch(position // per_epoch, clock, display)
                        clock = Clock()
                    if stop or self._save_is_due(position + 1, per_epoch, total):
                        self._save(display)
                    if stop:
                        wait_for_all()  # who leaves first makes the launcher end the others
                        raise Interrupted(asked[0] if asked else signal.SIGTERM, position + 1)
            return self._finish(limited=total < per_epoch * self.epochs)

    def train_batch(self, position: int, clock: Clock, display: Display) -> None:
        """One step, at the learning rate of its place in the run."""
        per_epoch = len(self.task.batches)
        epoch, number = divmod(position, per_epoch)
        lr = self.run.base.lr * self.run.schedule.factor(position, per_epoch, self.epochs)
        set_rate(self.optimizer, lr)
        self.optimizer.set_epoch(epoch)
        with clock.timed("data"):
            batch = self.batch(position)
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

    def display(self, total: int) -> Display:
        label = f"{self.run.name} {self.run.method} seed {self.run.seed}"
        shown = is_first() and not self.settings.quiet
        return Display(total, self.place.position, label, shown=shown)

    def batch(self, position: int) -> Any:
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

    def _end_epoch(self, epoch: int, clock: Clock, display: Display) -> None:
        lr = self.optimizer.param_groups[0]["lr"]
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
            display,
            {
                "epoch": epoch,
                "step": last.step,
                "lr": lr,
                "train_loss": train_loss,
                "sharpness": last.sharpness,
                "cosine": last.cosine,
                "skips": last.skips,
                **{f"validation_{name}": value for name, value in scores.items()},
            },
        )
        share = 100 * clock.data / max(clock.data + clock.steps, 1e-9)
        display.say(
            f"epoch {epoch + 1}/{self.epochs}  loss {train_loss:.4f}  "
            f"validation {self.task.metric} {score:.2f}  lr {lr:.4f}  {seconds:.1f} s  "
            f"data {share:.1f} %  left {display.eta(self.place.position)}"
        )

    def _finish(self, *, limited: bool) -> dict[str, Any]:
        """Judge the chosen model on the test data, and write the result."""
        last, memorized = self._evaluate("test"), self._training_accuracy()
        chosen = last
        if self.run.select == "best" and self.place.best_epoch >= 0:
            position = (self.place.best_epoch + 1) * len(self.task.batches)
            self.model.load_state_dict(self.checkpoints.best(position)["model"])
            chosen = self._evaluate("test")
        result = {
            "test": chosen,
            "test_last": last,
            "train_accuracy": memorized,
            "best_epoch": self.place.best_epoch,
            "best_validation": self.place.best_score,
            "seconds": self.place.seconds,
            "updates": self.place.updates,
            "limited": limited,
        }
        if is_first() and not limited:
            self.folder.metrics_size()  # all lines are there, or this is an error
            self.folder.write("result.json", result)
        return result

    def _evaluate(self, split: str) -> dict[str, float]:
        self.executor.model.eval()
        scores = self.task.evaluate(self.model, split)
        self.executor.model.train()
        return scores

    def _training_accuracy(self) -> float | None:
        self.executor.model.eval()
        accuracy = self.task.training_accuracy(self.model)
        self.executor.model.train()
        return accuracy

    # ---- saving and resuming -----------------------------------------------------------------

    def _save_is_due(self, position: int, per_epoch: int, total: int) -> bool:
        every = self.settings.save_every or per_epoch
        return position % every == 0 or position == total

    def _save(self, display: Display) -> None:
        self.executor.sync_buffers()
        if not is_first():
            return
        place = self.place
        try:
            loop = {
                "place": asdict(place),
                "metrics_size": self.folder.metrics_size(),
                "data_ranks": self.data_ranks,
            }
            state = {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "loop": loop,
            }
            self.checkpoints.save(place.position, state)
        except OSError as error:
            display.say(f"warning: {error}; training goes on")

    def _save_best(self, display: Display) -> bool:
        """Save the model as the best so far; whether the disk took it, the same on all ranks."""
        self.executor.sync_buffers()
        failed = False
        if is_first():
            position, state = self.place.position, {"model": self.model.state_dict()}
            try:
                self.checkpoints.save_best(position, state)
            except CheckpointError as error:
                display.say(f"warning: {error}; the best model before it stays the best")
                failed = True
        return not any_rank(failed)

    def _resume(self) -> None:
        found, is_newest = self.checkpoints.newest(self._warn)
        if not self.settings.resume:
            found = None
        require_same_place(0 if found is None else found.step)
        if found is None:
            if is_first():
                self.folder.cut_metrics(0)
            return
        try:
            self._load(found.state)
        except (KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise CheckpointError(
                f"checkpoint {found.path} does not fit this run ({type(error).__name__}: {error}); "
                "resume with the command that wrote it, or choose another --out"
            ) from error
        if is_first() and is_newest:  # all are good: what a crash left over may go
            self.checkpoints.prune()

    def _load(self, state: dict[str, Any]) -> None:
        before = state["loop"]
        place = Place(**before["place"])
        if before["data_ranks"] != self.data_ranks:
            self._warn_of_other_shards(before["data_ranks"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(
            state["optimizer"], allow_changes=self.settings.allow_changes
        )
        self.place = place
        if is_first():
            self.folder.cut_metrics(before["metrics_size"])
        if self.optimizer.method.holds_batch and self.place.position > 0:
            self.optimizer.hold(self.batch(self.place.position - 1))

    def _warn_of_other_shards(self, before: int) -> None:
        text = (
            f"each batch is now cut into {self.data_ranks} part(s), before it was {before}: the "
            "result will differ in the last bits, and more with BatchNorm, from that of an "
            "uninterrupted run"
        )
        if self.settings.strict:
            raise ValueError(f"{text}; leave out --strict to go on all the same")
        self._warn(text)

    def _record(self, display: Display, line: dict[str, Any]) -> None:
        if not is_first():
            return
        try:
            self.folder.append(line)
            if self.settings.tensorboard:
                write_curves(self.folder.path / "tensorboard", line)
        except OSError as error:
            display.say(f"warning: metrics wait for room on the disk ({error}); training goes on")

    def _warn(self, text: str) -> None:
        if is_first():
            print(f"warning: {text}", flush=True)


def write_curves(folder: Path, line: dict[str, Any]) -> None:
    """One epoch's numbers for TensorBoard."""
    from torch.utils.tensorboard.writer import SummaryWriter

    with SummaryWriter(folder, purge_step=line["epoch"]) as writer:
        for name, value in line.items():
            if isinstance(value, int | float) and name != "epoch":
                writer.add_scalar(name, value, line["epoch"])
