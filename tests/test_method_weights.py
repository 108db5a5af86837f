"""Every method with weights that take no part: no radius, frozen, added, or without a gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import sampa
from tests.problems import flat, same_bits
from tests.variants import ACTIVE, BATCHES, PLAN, Sample, batch_norm_mlp, build, loss_of, net, train

every_method = pytest.mark.parametrize("name", ACTIVE)
WITHOUT_RADIUS = {"base", "optgd", "saf", "mesa"}


@pytest.mark.parametrize("name", [n for n in ACTIVE if n not in WITHOUT_RADIUS])
def test_a_group_without_radius_is_not_perturbed(name: str) -> None:
    """Of two groups with radii 0 and 0.5 only the second leaves x_t at an ascent point."""
    model = batch_norm_mlp()
    first, second = list(model.parameters())[:2], list(model.parameters())[2:]
    groups = [{"params": first, "rho": 0.0}, {"params": second, "rho": 0.5}]
    make = {**ACTIVE, "gsam": sampa.GSAM}[name]  # its schedule starts from each group's radius
    optimizer = make(torch.optim.SGD(groups, lr=0.1, momentum=0.9), executor=sampa.Serial(model))
    start: list[Tensor] = []
    moved: set[tuple[bool, bool]] = set()

    def loss_fn(batch: Sample) -> sampa.Loss:
        now = flat(model)
        moved.add(
            (not torch.equal(now[:30], start[-1][:30]), not torch.equal(now[30:], start[-1][30:]))
        )
        return loss_of(model)(batch)

    for batch in BATCHES:
        start.append(flat(model))
        optimizer.step(loss_fn, batch)
    assert (False, True) in moved
    assert (True, False) not in moved
    assert name.startswith("sampa") or (True, True) not in moved  # SAMPa looks ahead with both


@every_method
def test_a_weight_frozen_in_the_middle_stays(name: str) -> None:
    """Whatever a method remembers of it; the others train on."""
    model = net()
    optimizer = build(name, model)
    list(train(optimizer, model, PLAN[:4]))
    frozen = [model.get_parameter("0.weight"), model.get_parameter("1.weight")]
    for p in frozen:
        p.requires_grad_(False)
    last = model.get_parameter("4.weight")
    before, other = [p.clone() for p in frozen], last.detach().clone()
    list(train(optimizer, model, PLAN[4:]))
    assert same_bits([p.detach() for p in frozen], before)
    assert not torch.equal(last, other)


@every_method
def test_a_group_added_in_the_middle_is_trained(name: str) -> None:
    model = net()
    head = list(model[4].parameters())
    base = torch.optim.SGD(list(model.parameters())[:4], lr=0.1, momentum=0.9)
    for p in head:
        p.requires_grad_(False)
    optimizer = ACTIVE[name](base, executor=sampa.Serial(model))
    list(train(optimizer, model, PLAN[:4]))
    before = [p.detach().clone() for p in head]
    for p in head:
        p.requires_grad_(True)
    optimizer.add_param_group({"params": head})
    list(train(optimizer, model, PLAN[4:]))
    assert not any(torch.equal(p, b) for p, b in zip(head, before, strict=True))


class Branched(nn.Module):
    """A net with a branch that only some batches use."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()
        self.branch = nn.Linear(4, 3).double()
        self.uses_branch = True

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) + self.branch(x) if self.uses_branch else self.net(x)


@every_method
def test_a_branch_that_takes_no_part_is_left_alone(name: str) -> None:
    """No gradient means no step, no decay and no momentum, whatever is remembered of it."""
    model = Branched()
    optimizer = build(name, model)
    list(train(optimizer, model, PLAN[:4]))
    model.uses_branch = False
    list(train(optimizer, model, PLAN[4:6]))  # a held batch may still have used it
    before = flat(model.branch)
    list(train(optimizer, model, PLAN[6:]))
    assert torch.equal(flat(model.branch), before)
