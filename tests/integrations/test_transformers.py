"""The Trainer of transformers: its own loop with our step equals a plain loop with the library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import sampa
from tests.integrations.texts import Sentences, Tags, small_bert, small_tagger
from tests.lazy import Lazy
from tests.ranks import run_ranks

transformers, integration = Lazy("transformers"), Lazy("sampa.integrations.transformers")
SEED = 42  # the Trainer's own
SETTINGS: dict[str, Any] = {
    "use_cpu": True,
    "per_device_train_batch_size": 8,
    "num_train_epochs": 2,
    "logging_steps": 1,
    "report_to": [],
    "disable_tqdm": True,
    "learning_rate": 0.05,
    "save_strategy": "no",
    "train_sampling_strategy": "sequential",
}
CLIP = 0.15  # less than the norms of the gradients

pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")


def make(folder: Path | str, changes: dict[str, Any] | None = None, **keywords: Any) -> Any:
    args = transformers.TrainingArguments(str(folder), **{**SETTINGS, **(changes or {})})
    keywords = {"model": small_bert(), "train_dataset": Sentences(), "rho": 0.1, **keywords}
    return integration.SharpnessAwareTrainer(args=args, **keywords)


def with_sgd(folder: Path | str, changes: dict[str, Any] | None = None, **keywords: Any) -> Any:
    model = keywords.pop("model", None) or small_bert()
    return make(folder, changes, model=model, optimizers=(sgd(model), None), **keywords)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def plain_loss(model: Any, batch: dict[str, Tensor]) -> Tensor:
    return model(**batch, num_items_in_batch=batch["labels"].ne(-100).sum()).loss


def plain_loop(
    loss: Callable[[Any, dict[str, Tensor]], Tensor] = plain_loss,
    make: Callable[..., sampa.SharpnessAware] = sampa.SAMPa,
    parts: int = 1,
    **options: Any,
) -> dict[str, Tensor]:
    """What the Trainer is to do, in a few lines; `parts` batches make a step, or what is left."""
    model = small_bert()
    options = {"rho": 0.1, "max_norm": CLIP, "seed": SEED, **options}
    optimizer = make(sgd(model), executor=sampa.Serial(model), **options)
    batches: list[Any] = [*DataLoader(Sentences(), batch_size=8 // parts)]
    windows = [batches[first : first + parts] for first in range(0, len(batches), parts)]
    scheduler = transformers.get_linear_schedule_with_warmup(optimizer, 0, 2 * len(windows))
    for _ in range(2):
        for window in windows:
            model.train()
            if parts == 1:
                optimizer.step(lambda b: loss(model, b), window[0])
            else:
                weighted = [(inputs, 1 / len(window)) for inputs in window]
                optimizer.step(lambda part: loss(model, part[0]) * part[1], weighted, in_parts=True)
            assert optimizer.last is not None
            if optimizer.last.updated:
                scheduler.step()
    return model.state_dict()


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_the_trainer_equals_a_plain_loop_bit_for_bit(tmp_path: Path) -> None:
    """With dropout, a linear schedule and clipping, which both are at work."""
    trainer = with_sgd(tmp_path, {"max_grad_norm": CLIP}, lam=0.2)
    trainer.train()
    ours = trainer.model.state_dict()
    assert same(ours, plain_loop(lam=0.2))
    assert not same(ours, plain_loop(lam=0.2, max_norm=None))
    assert trainer.state.global_step == 6
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert [entry["updates"] for entry in logs] == list(range(6))
    assert logs[0]["learning_rate"] == logs[1]["learning_rate"] > logs[2]["learning_rate"]
    assert all(abs(entry["sharpness"]) < 1 and -1 <= entry["cosine"] <= 1 for entry in logs[1:])
    assert max(entry["grad_norm"] for entry in logs) > CLIP
    assert isinstance(trainer.sharpness_aware, sampa.SharpnessAware)


def test_another_method_of_two_rounds(tmp_path: Path) -> None:
    trainer = with_sgd(tmp_path, {"max_grad_norm": 0}, method="sam", rho=0.05)
    trainer.train()
    assert same(trainer.model.state_dict(), plain_loop(make=sampa.SAM, rho=0.05, max_norm=None))


def autocast_loss(model: Any, batch: dict[str, Tensor]) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return plain_loss(model, batch)


def test_bf16_equals_autocast_in_a_plain_loop(tmp_path: Path) -> None:
    trainer = with_sgd(tmp_path, {"bf16": True, "max_grad_norm": CLIP})
    trainer.train()
    ours = trainer.model.state_dict()
    assert same(ours, plain_loop(autocast_loss))
    assert not same(ours, plain_loop())


def test_accumulated_batches_make_a_step_and_count_once(tmp_path: Path) -> None:
    """20 sentences are two steps of two batches of 4, and one of the batch that is left."""
    changes = {"max_grad_norm": CLIP, "gradient_accumulation_steps": 2}
    trainer = with_sgd(tmp_path, {**changes, "per_device_train_batch_size": 4})
    trainer.train()
    assert same(trainer.model.state_dict(), plain_loop(parts=2))
    assert trainer.state.global_step == 6
    assert trainer.sharpness_aware.last.step == 5


def test_accumulation_weighs_tokens_and_not_sentences(tmp_path: Path) -> None:
    """The gradient is that of the whole batch, in which some sentences are longer."""
    weights = []
    for parts in (1, 2):
        changes = {"gradient_accumulation_steps": parts, "per_device_train_batch_size": 8 // parts}
        trainer = with_sgd(tmp_path, changes, model=small_tagger(), train_dataset=Tags())
        trainer.train()
        weights.append(trainer.model.state_dict())
    for a, b in zip(*(w.values() for w in weights), strict=True):
        torch.testing.assert_close(a, b)


def test_loss_functions_and_label_smoothing_of_the_trainer(tmp_path: Path) -> None:
    def own_loss(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        return F.cross_entropy(outputs.logits, labels, reduction="sum") / num_items_in_batch

    def own_in_a_loop(model: Any, batch: dict[str, Tensor]) -> Tensor:
        outputs = model(batch["input_ids"])
        return own_loss(outputs, batch["labels"], batch["labels"].ne(-100).sum())

    trainer = with_sgd(tmp_path, {"max_grad_norm": CLIP}, compute_loss_func=own_loss)
    trainer.train()
    assert same(trainer.model.state_dict(), plain_loop(own_in_a_loop))

    def smoothed(model: Any, batch: dict[str, Tensor]) -> Tensor:
        outputs = model(batch["input_ids"])
        items = batch["labels"].ne(-100).sum()
        return trainer.label_smoother({"logits": outputs.logits}, batch["labels"], False, items)

    trainer = with_sgd(tmp_path, {"max_grad_norm": CLIP, "label_smoothing_factor": 0.1})
    trainer.train()
    assert same(trainer.model.state_dict(), plain_loop(smoothed))


def test_a_run_resumed_in_the_middle_of_an_epoch_equals_one_that_was_not_interrupted(
    tmp_path: Path,
) -> None:
    """With AdamW, a warm-up, random order, evaluation and metrics."""

    def accuracy(prediction: Any) -> dict[str, float]:
        return {
            "accuracy": float(np.mean(prediction.predictions.argmax(1) == prediction.label_ids))
        }

    changes = {
        "train_sampling_strategy": "random",
        "warmup_steps": 2,
        "save_strategy": "steps",
        "save_steps": 2,
        "eval_strategy": "epoch",
    }
    keywords = {"eval_dataset": Sentences(20), "compute_metrics": accuracy}
    whole = make(tmp_path / "whole", changes, **keywords)
    whole.train()
    resumed = make(tmp_path / "resumed", changes, **keywords)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    assert same(resumed.model.state_dict(), whole.model.state_dict())
    assert resumed.sharpness_aware.last == whole.sharpness_aware.last
    evaluations = [
        [e["eval_accuracy"] for e in t.state.log_history if "eval_accuracy" in e]
        for t in (whole, resumed)
    ]
    assert evaluations[0] == evaluations[1]
    assert len(evaluations[0]) == 2


def test_what_does_not_fit_is_refused_with_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'sampa'"):
        make(tmp_path, method="samba")
    with pytest.raises(TypeError, match="did you mean max_norm="):
        make(tmp_path, max_nrom=1.0).train()
    model = small_bert()
    optimizer = sampa.SAM(sgd(model))
    trainer = make(tmp_path, model=model, optimizers=(optimizer, None))
    with pytest.raises(TypeError, match="got a sampa optimizer; pass its base"):
        trainer.train()
    args = transformers.TrainingArguments(str(tmp_path), **SETTINGS)
    args.fsdp = "full_shard"
    with pytest.raises(ValueError, match="fsdp must not be set"):
        integration.SharpnessAwareTrainer(model=small_bert(), args=args)


# ---- several processes -------------------------------------------------------------------------


def trained(folder: str, changes: dict[str, Any], resume: str | None) -> tuple[Any, ...]:
    """One rank: the weights, the counts, the evaluation."""
    trainer = with_sgd(folder, changes, eval_dataset=Sentences(21), compute_metrics=count)
    trainer.train(resume_from_checkpoint=resume)
    counts = (trainer.state.global_step, trainer.state.max_steps, trainer.state.epoch)
    metrics = trainer.evaluate()
    tokens = trainer.state.num_input_tokens_seen
    return trainer.model.state_dict(), counts, metrics["eval_samples"], tokens, trainer.layout


def count(prediction: Any) -> dict[str, float]:
    return {"samples": float(len(prediction.label_ids))}


SAVING = {
    "max_grad_norm": CLIP,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "save_strategy": "steps",
    "save_steps": 2,
    "include_num_input_tokens_seen": "all",
}


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_are_two_branches_and_equal_one(tmp_path: Path) -> None:
    weights, counts, samples, tokens, _ = trained(str(tmp_path / "one"), SAVING, None)
    ranks = run_ranks(2, trained, str(tmp_path / "two"), SAVING, None)
    assert [rank[4].branches for rank in ranks] == [2, 2]
    for theirs in ranks:
        assert same(theirs[0], weights)
        assert theirs[1:4] == (counts, samples, tokens)
    # One process goes on where two were.
    one = trained(str(tmp_path / "three"), SAVING, str(tmp_path / "two" / "checkpoint-2"))
    assert same(one[0], weights)


@pytest.mark.slow
@pytest.mark.dist
def test_two_branches_of_two_data_ranks_resume_to_the_same_bits(tmp_path: Path) -> None:
    """Half of the steps of one process with the same batch on each rank."""
    changes = {**SAVING, "gradient_accumulation_steps": 1}
    whole = run_ranks(4, trained, str(tmp_path / "whole"), changes, None)
    checkpoint = str(tmp_path / "whole" / "checkpoint-2")
    resumed = run_ranks(4, trained, str(tmp_path / "resumed"), changes, checkpoint)
    assert [tuple(rank[4]) for rank in whole] == [
        *((2, 2, 0, 0), (2, 2, 0, 1), (2, 2, 1, 0), (2, 2, 1, 1))
    ]
    assert whole[0][1] == (6, 6, 2.0)
    for a, b in zip(whole, resumed, strict=True):
        assert same(a[0], whole[0][0])
        assert same(b[0], whole[0][0])
