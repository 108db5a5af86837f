"""The training loop, to be read from top to bottom."""

from __future__ import annotations

import signal
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

import sampa
from sampa.execution.randomness import derive_seed
from sampa.lab.devices import find_device
from sampa.lab.results.outcome import RunResult
from sampa.lab.terminal import say
from sampa.lab.training import ranks
from sampa.lab.training.divergence import Diverged, DivergenceWatch
from sampa.lab.training.flatness import flatness_after
from sampa.lab.training.folder import EpochLine, RunFolder
from sampa.lab.training.hyperparameters import epochs_of
from sampa.lab.training.keeping import Keeper
from sampa.lab.training.loading import Loader
from sampa.lab.training.manifest import CheckpointError
from sampa.lab.training.method import branches_of, checked_method, optimizer_of
from sampa.lab.training.network import network_of
from sampa.lab.training.progress import Display, write_curves
from sampa.lab.training.run import Run
from sampa.lab.training.session import (
    Clock,
    Interrupted,
    LoopState,
    SavedLoop,
    Settings,
    step_errors,
    stop_signals,
)
from sampa.lab.training.sharding import changed_cut, executor_of, require_run_shards
from sampa.lab.training.shards import shards_of
from sampa.lab.training.tasks import open_task
from sampa.method import Method

SMOOTHING = 0.9  # of the accuracy on the display: what is kept of its value before the step


def train(run: Run, out: Path, settings: Settings) -> RunResult:
    """Carry out a run in a folder, from its beginning or from its last checkpoint.

    Returns:
        The result that is also in result.json.

    Raises:
        Interrupted: If a signal asked it to stop; a checkpoint was saved.
        Diverged: If its loss left all bounds; there is no result.
    """
    method, folder = checked_method(run), RunFolder(out)
    require_run_shards(run, method, settings)
    try:
        if ranks.is_first():
            changed = settings.allow_changes
            for text in folder.open(run, resume=settings.resume, allow_changes=changed):
                warn(text, strict=settings.strict)
            folder.note_conditions()
        finished = folder.result() if settings.resume else None
        return finished or Trainer(run, folder, settings, method).fit()
    except Diverged as error:
        folder.note_divergence(str(error))
        raise
    finally:
        folder.close()


def warn(text: str, *, strict: bool = False) -> None:
    """Print a warning on the first rank; with `strict` refuse to go on."""
    if strict:
        raise ValueError(f"{text}; leave out --strict to go on all the same")
    if ranks.is_first():
        say(f"warning: {text}")


class Trainer:
    """One run in one process (of one or several that work together)."""

    def __init__(self, run: Run, folder: RunFolder, settings: Settings, method: Method) -> None:
        self.run, self.folder, self.settings = run, folder, settings
        self.device, self.epochs = find_device(settings.device), epochs_of(run)
        branches = branches_of(run, method, ranks.world_size())
        self.data_ranks = ranks.world_size() // branches
        # The mesh puts data ranks next to each other: rank = branch * data ranks + data rank.
        shard = ranks.rank() % self.data_ranks
        self.task = open_task(run, settings.data_dir, shard=shard, shards=self.data_ranks)
        self.per_epoch = len(self.task.batches)
        self.loader = Loader(self.task.batches, self.epochs, self.device, settings.prefetch)
        torch.manual_seed(derive_seed(run.seed, "model"))
        self.model = network_of(run, self.task.model_options(), settings.data_dir)
        self.executor = executor_of(run, self.model, branches, settings, self.device)
        total = self.per_epoch * self.epochs
        self.optimizer = optimizer_of(run, self.model, self.executor, total, self.device)
        self.state, self.watch = LoopState(), DivergenceWatch(run, self.per_epoch)
        self.keeper = Keeper(folder, settings.keep, shards_of(self.executor))
        self.accuracy = torch.zeros(())  # of training in percent, smoothed, for the display only

    # ---- the loop ----------------------------------------------------------------------------

    def fit(self) -> RunResult:
        self._resume()
        total = self.per_epoch * self.epochs
        if self.settings.limit_steps is not None:
            total = min(total, self.settings.limit_steps)
        save_every = self.settings.save_every or self.per_epoch
        with self.display(total) as display, stop_signals() as asked:
            clock = Clock()
            for position in range(self.state.position, total):
                with step_errors(ranks.rank(), position):
                    self.train_batch(position, clock, display)
                    stop = ranks.any_rank(bool(asked))
                    done = position + 1
                    if done % self.per_epoch == 0:
                        self._end_epoch(position // self.per_epoch, clock, display)
                        clock = Clock()
                    if stop or done % save_every == 0 or done == total:
                        self._save(display)
                    if stop:
                        ranks.wait_for_all()  # the launcher ends all when one has left
                        number = asked[0] if asked else signal.SIGTERM
                        raise Interrupted(number, done, self.keeper.saved)
            return self._finish(limited=total < self.per_epoch * self.epochs)

    def train_batch(self, position: int, clock: Clock, display: Display) -> None:
        """One step, at the learning rate of its place in the run."""
        epoch, number = divmod(position, self.per_epoch)
        lr = self.run.base.lr * self.run.schedule.factor(position, self.per_epoch, self.epochs)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.set_epoch(epoch)
        with clock.timed("data"):
            batch = self.batch(position)
        with clock.timed("steps"):
            loss = self.optimizer.step(self._loss, batch).item()
        assert self.optimizer.last is not None
        self.watch.after_batch(epoch, loss)
        self.state = replace(
            self.state.after_lap(clock),
            first_loss=self.state.first_loss if position else loss,
            position=position + 1,
            updates=self.optimizer.last.step,
            loss_sum=self.state.loss_sum + loss,
        )
        mean_loss, step_seconds = self.state.loss_sum / (number + 1), clock.steps / (number + 1)
        samples_per_second = self.run.batch_size / max(step_seconds, 1e-9)
        display.advance(mean_loss, float(self.accuracy), lr, samples_per_second)

    def display(self, total: int) -> Display:
        label = f"{self.run.name} {self.run.method} seed {self.run.seed}"
        shown = ranks.is_first() and not self.settings.quiet
        return Display(total, self.state.position, label, shown=shown)

    def batch(self, position: int) -> Any:
        return self.loader.batch(position)

    def _loss(self, batch: Any) -> sampa.Loss:
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.run.amp or "")
        with torch.autocast(self.device.type, dtype, enabled=dtype is not None):
            loss = self.task.loss(self.executor.model, batch)
        if loss.logits is not None and loss.targets is not None and loss.logits.shape[1] > 1:
            # It stays on the device: to read it would hold up backward.
            share = (loss.logits.detach().argmax(1) == loss.targets).float().mean()
            self.accuracy = SMOOTHING * self.accuracy + (1 - SMOOTHING) * 100 * share
        return loss

    def _end_epoch(self, epoch: int, clock: Clock, display: Display) -> None:
        lr = self.optimizer.param_groups[0]["lr"]
        scores = self._evaluate("validation")
        score = scores[self.task.metric]
        seconds = time.perf_counter() - clock.began
        train_loss = self.state.loss_sum / self.per_epoch
        self.watch.after_epoch(epoch, train_loss, self.state.first_loss)
        if score > self.state.best_score and self._save_best(display):
            self.state = replace(self.state, best_score=score, best_epoch=epoch)
        self.state = replace(self.state.after_lap(clock), loss_sum=0.0)
        last = self.optimizer.last
        assert last is not None
        line: EpochLine = {
            "epoch": epoch,
            "step": last.step,
            "lr": lr,
            "train_loss": train_loss,
            "sharpness": last.sharpness,
            "cosine": last.cosine,
            "skips": last.skips,
            **{f"validation_{name}": value for name, value in scores.items()},
            **flatness_after(epoch, self.settings, self.task, self.model, self.device),
        }
        times: EpochLine = {"epoch": epoch, "seconds": seconds, "data_share": clock.data_share}
        self._record(epoch, line, times, display)
        display.say(
            f"epoch {epoch + 1}/{self.epochs}  loss {train_loss:.4f}  "
            f"validation {self.task.metric} {score:.2f}  lr {lr:.4f}  {seconds:.1f} s  "
            f"data {clock.data_share:.1f} %  left {display.eta(self.state.position)}"
        )

    def _record(self, epoch: int, line: EpochLine, times: EpochLine, display: Display) -> None:
        if not ranks.is_first():
            return
        try:
            self.folder.append(line)
            if self.settings.tensorboard:
                write_curves(self.folder.path / "tensorboard", epoch, line | times)
            self.folder.note_times(times)
        except OSError as error:
            display.say(f"warning: metrics wait for room on the disk ({error}); training goes on")

    def _finish(self, *, limited: bool) -> RunResult:
        """Judge the chosen model on the test data, and write the result."""
        last = chosen = self._evaluate("test")
        memorized = self._evaluate("train")["accuracy"] if "train" in self.task.splits else None
        best = self._best_position()
        if self.run.select == "best" and best is not None:
            self.model.load_state_dict(self.keeper.load_best(best)["model"])
            chosen = self._evaluate("test")
        result = RunResult(
            test=chosen,
            test_last=last,
            train_accuracy=memorized,
            best_epoch=self.state.best_epoch,
            best_validation=self.state.best_score,
            seconds=self.state.seconds,
            core_seconds=self.state.core_seconds if self.device.type == "cpu" else 0.0,
            updates=self.state.updates,
            limited=limited,
        )
        if ranks.is_first() and not limited:
            self.folder.metrics_size()  # all lines are written, or this is an error
            self.folder.write("result.json", asdict(result))
        return result

    def _evaluate(self, split: str) -> dict[str, float]:
        self.executor.model.eval()
        scores = self.task.evaluate(self.model, split)
        self.executor.model.train()
        return scores

    # ---- saving and resuming -----------------------------------------------------------------

    def _save(self, display: Display) -> None:
        self.executor.sync_buffers()
        try:
            self.keeper.save(self.state.position, self._all_state, self._best_position())
        except OSError as error:
            display.say(f"warning: {error}; training goes on")

    def _all_state(self) -> dict[str, Any]:
        written = self.folder.metrics_size() if ranks.is_first() else 0
        loop = SavedLoop(self.state, written, self.data_ranks, self.executor.is_sharded)
        return {
            **self._model_state(),
            "optimizer": self.optimizer.state_dict(),
            "loop": asdict(loop),
        }

    def _save_best(self, display: Display) -> bool:
        """Save the model as the best so far; whether the disk took it, the same on all ranks."""
        self.executor.sync_buffers()
        failed = False
        try:
            self.keeper.save_best(self.state.position, self._model_state)
        except CheckpointError as error:
            display.say(f"warning: {error}; the best model before it stays the best")
            failed = True
        return not ranks.any_rank(failed)

    def _model_state(self) -> dict[str, Any]:
        self.executor.forget_copies()
        return {"model": self.model.state_dict()}

    def _best_position(self) -> int | None:
        """After how many batches the best model was saved."""
        epochs = self.state.best_epoch + 1
        return epochs * self.per_epoch if epochs else None

    def _resume(self) -> None:
        found = self.keeper.newest(warn) if self.settings.resume else None
        ranks.require_same_position(0 if found is None else found.step)
        if found is None:
            if ranks.is_first():
                self.folder.cut_metrics()
            return
        try:
            self._load(found.state)
        except (KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise CheckpointError(
                f"checkpoint {found.path} does not fit this run ({type(error).__name__}: {error}); "
                "resume with the command that wrote it, or choose another --out"
            ) from error
        if ranks.is_first():
            self.keeper.clear_up()

    def _load(self, state: dict[str, Any]) -> None:
        loop = SavedLoop.from_json(state["loop"])
        self.state = loop.place
        for text in changed_cut(loop, self.data_ranks, self.executor):
            warn(text, strict=self.settings.strict)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(
            state["optimizer"], allow_changes=self.settings.allow_changes
        )
        missing = self.folder.cut_metrics(loop.metrics_size) if ranks.is_first() else None
        if missing is not None:
            warn(f"{missing}; the weights are not touched by it", strict=self.settings.strict)
        if self.optimizer.method.holds_batch and self.state.position > 0:
            self.optimizer.hold(self.batch(self.state.position - 1))
