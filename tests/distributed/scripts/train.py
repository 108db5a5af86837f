"""A user's script: the same file runs in plain python and under torchrun.

    python train.py OUT
    torchrun --nproc-per-node 2 train.py OUT

Writes what each rank ends with to OUT.0, OUT.1, ...
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import sampa


def main(out: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2)
    ).append(nn.Linear(8 * 6 * 6, 10))
    data = TensorDataset(torch.randn(160, 1, 8, 8), torch.randint(10, (160,)))

    executor = sampa.distribute(model)
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    optimizer = sampa.SAMPa(base, rho=0.1, lam=0.2, executor=executor)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    sampler = executor.sampler(data, shuffle=True, seed=0)
    loader = DataLoader(data, batch_size=16, sampler=sampler)

    def loss_fn(batch: list[torch.Tensor]) -> torch.Tensor:
        x, y = batch
        return F.cross_entropy(executor.model(x), y, label_smoothing=0.1)

    losses: list[torch.Tensor] = []
    for epoch in range(4):
        sampler.set_epoch(epoch)
        losses += [optimizer.step(loss_fn, batch) for batch in loader]
        scheduler.step()

    executor.model.eval()
    with torch.no_grad():
        output = executor.model(data.tensors[0])
    result = {"model": model.state_dict(), "loss": losses[-1], "output": output}
    result["last"] = optimizer.last
    rank = 0 if executor.mesh is None else executor.mesh.get_rank()
    torch.save(result, f"{out}.{rank}")
    if "--fail" in sys.argv and rank == 1:
        raise ValueError("rank 1 fails at the end")
    if "--fail" in sys.argv:
        executor.model.train()
        optimizer.step(loss_fn, next(iter(loader)))


if __name__ == "__main__":
    main(sys.argv[1])
