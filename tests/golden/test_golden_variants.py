"""The variants of SAM on the four-weight quadratic, against numbers made without this library."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

import sampa
from sampa.pieces.geometry import every_parameter
from tests.golden import values
from tests.golden.test_golden import ROWS as CORE_ROWS
from tests.golden.test_golden import Row, assert_golden
from tests.problems import QUADRATIC_BATCHES, Batch, Quadratic, trajectory


def on_norm_layer(parameter: sampa.ParameterInfo) -> bool:
    return parameter.name.startswith("norm")


def without_bias(context: sampa.Context) -> list[bool]:
    return [True, False, True]  # fc.weight, fc.bias, norm.weight


def mask_1001() -> sampa.Masked:
    tensors = [torch.tensor(m, dtype=torch.float64) for m in ([1.0, 0.0], [0.0], [1.0])]
    return sampa.Masked(sampa.Vector(tensors))


def adamw_for_momentum(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.01)


VaSSO_04 = sampa.Average(0.4)
TWO = sampa.MicroBatches(count=2)
COINS = [True, False, True]

ROWS: dict[str, Row] = {
    "asam rho 0.5 eta 0.01": Row(sampa.ASAM),
    "asam everywhere rho 0.5 eta 0": Row(partial(sampa.ASAM, eta=0.0, normalize_bias=True)),
    "msam 2 shards": Row(partial(sampa.MicroBatchSAM, rho=0.1, num_shards=2)),
    "sam-on rho 0.5": Row(partial(sampa.SAMON, select=on_norm_layer)),
    "vasso theta 0.4": Row(partial(sampa.VaSSO, rho=0.1, theta=0.4)),
    "looksam k 2 alpha 0.7": Row(partial(sampa.LookSAM, rho=0.1, k=2, alpha=0.7)),
    "looksam k 2 alpha 0 = rst 101": Row(partial(sampa.LookSAM, rho=0.1, k=2, alpha=0.0)),
    "g-rst 101 gamma 2": Row(partial(sampa.RST, rho=0.1, coins=COINS, gamma=2.0)),
    "ae-sam delta 0.9": Row(partial(sampa.AESAM, rho=0.1, total_steps=3)),
    "esam-swp tensors beta 0.5": Row(partial(sampa.ESAM, rho=0.1, subset=without_bias)),
    "esam-swp elements beta 0.5": Row(
        partial(sampa.ESAM, rho=0.1, subset=without_bias, swp="element")
    ),
    "esam-sds gamma 0.5": Row(partial(sampa.ESAM, rho=0.1, beta=1.0, gamma=0.5)),
    "ssam mask 1001": Row(partial(sampa.SAM, rho=0.1, geometry=mask_1001())),
    "gradient-norm penalty alpha 0.8": Row(partial(sampa.GradNormPenalty, rho=0.1, alpha=0.8)),
    "gsam alpha 0.4": Row(partial(sampa.GSAM, rho=0.1, alpha=0.4)),
    "friendly-sam sigma 1 lmbda 0.6": Row(partial(sampa.FriendlySAM, rho=0.1)),
    "fisher-sam gamma 0.1 eta 1": Row(partial(sampa.FisherSAM, gamma=0.1, eta=1.0)),
    "wsam gamma 0.9 decoupled": Row(partial(sampa.WSAM, rho=0.1)),
    "wsam gamma 0.9 coupled": Row(partial(sampa.WSAM, rho=0.1, decouple=False)),
    "async-sam tau 1": Row(partial(sampa.AsyncSAM, rho=0.1)),
    "multi-step K 3 a rho/3": Row(partial(sampa.MultiStepSAM, rho=0.1, steps=3)),
    "multi-step K 3 projected": Row(partial(sampa.MultiStepSAM, rho=0.1, steps=3, project=True)),
    "momentum-sam decay at x~": Row(partial(sampa.MomentumSAM, rho=0.1, decay_at="perturbed")),
    "momentum-sam decay at x": Row(partial(sampa.MomentumSAM, rho=0.1)),
    "momentum-sam adamw": Row(
        partial(sampa.MomentumSAM, rho=0.1, decay_at="after"), adamw_for_momentum
    ),
    "sampa-0.2 + asam rho 1": Row(
        partial(sampa.SAMPa, rho=1.0, geometry=sampa.Adaptive()), batches=4
    ),
    "sampa-0.2 + sam-on rho 1": Row(
        partial(sampa.SAMPa, rho=1.0, geometry=sampa.Only(on_norm_layer)), batches=4
    ),
    "sampa-0.2 + vasso rho 0.2": Row(partial(sampa.SAMPa, rho=0.2, direction=VaSSO_04), batches=4),
    "sampa-0.2 + msam rho 0.2": Row(partial(sampa.SAMPa, rho=0.2, micro_batches=TWO), batches=4),
}


class PerSample(Quadratic):
    """The quadratic with the loss of each sample, which ESAM's data selection needs."""

    def forward(self, batch: Batch) -> Any:
        a, c = batch
        x = torch.cat(list(self.parameters()))
        return sampa.Loss(per_sample=(0.5 * a * (x - c).square()).sum(dim=1))


@pytest.mark.parametrize("name", ROWS)
def test_three_updates_end_at_the_golden_weights(name: str) -> None:
    row, model = ROWS[name], PerSample()
    optimizer = row.make(row.base(model), perturb_eps=0.0, executor=sampa.distribute(model))
    visited = trajectory(optimizer, model, QUADRATIC_BATCHES[: row.batches])
    assert len(visited) == 3
    assert_golden(visited[-1], values.X_3[name])


def test_every_golden_row_is_checked() -> None:
    assert set(values.X_3) == set(ROWS) | set(CORE_ROWS)


def test_rst_with_given_coins_ends_where_looksam_without_reuse_does() -> None:
    model = Quadratic()
    optimizer = sampa.RST(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01),
        rho=0.1,
        coins=COINS,
        perturb_eps=0.0,
    )
    visited = trajectory(optimizer, model, QUADRATIC_BATCHES[:3])
    assert_golden(visited[-1], values.X_3["looksam k 2 alpha 0 = rst 101"])


def test_adaptive_geometry_everywhere_without_eta_is_the_other_published_asam() -> None:
    geometry = sampa.Adaptive(eta=0.0, select=every_parameter)
    model = Quadratic()
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    optimizer = sampa.SAM(base, rho=0.5, geometry=geometry, perturb_eps=0.0)
    visited = trajectory(optimizer, model, QUADRATIC_BATCHES[:3])
    assert_golden(visited[-1], values.X_3["asam everywhere rho 0.5 eta 0"])
