"""LoRA with peft and SAMPa: only the small matrices beside frozen weights are trained.

python examples/lora_finetune.py
torchrun --nproc-per-node 2 examples/lora_finetune.py     # the two gradients of a step at once

A small BERT reads digits row by row: each of the eight rows of pixels is a token.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertModel

import sampa


class Reader(nn.Module):
    """A transformer from the rows of an image to its digit."""

    def __init__(self) -> None:
        super().__init__()
        sizes: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 2}
        config = BertConfig(num_hidden_layers=1, num_attention_heads=4, **sizes)
        self.rows = nn.Linear(8, 64)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.head = nn.Linear(8 * 64, 10)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.rows(images.view(-1, 8, 8))
        return self.head(self.bert(inputs_embeds=tokens).last_hidden_state.flatten(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # their number changes the last bits of sums
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    train, test = torch.randperm(len(x)).split([1437, 360])
    data = TensorDataset(x[train], y[train])

    # The query and value projections get matrices of rank 8; the new layers are trained as a whole.
    lora = LoraConfig(r=8, target_modules=["query", "value"], modules_to_save=["rows", "head"])
    model: Any = get_peft_model(Reader(), lora)
    trained = [p for p in model.parameters() if p.requires_grad]
    executor = sampa.distribute(model)
    optimizer = sampa.SAMPa(torch.optim.AdamW(trained, lr=1e-2), rho=0.02, executor=executor)
    sampler = executor.sampler(data)

    def loss_fn(batch: tuple[Tensor, Tensor]) -> Tensor:
        images, targets = batch
        return F.cross_entropy(executor.model(images), targets)

    for epoch in range(parser.parse_args().epochs):
        sampler.set_epoch(epoch)
        for batch in DataLoader(data, batch_size=32, sampler=sampler):
            optimizer.step(loss_fn, batch)

    share = sum(p.numel() for p in trained) / sum(p.numel() for p in model.parameters())
    executor.model.eval()
    with torch.no_grad():
        accuracy = (executor.model(x[test]).argmax(1) == y[test]).double().mean().item()
    print(f"trained {share:.2f} of the weights, test accuracy {100 * accuracy:.1f} %")


if __name__ == "__main__":
    main()
