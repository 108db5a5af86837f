"""What is said to those who write as other libraries want it, and what they write instead."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest
import torch
from torch import Tensor

import sampa
from tests import stand_ins
from tests.problems import cross_entropy_of, flat, sgd, tiny_mlp, vector_batches
from tests.test_examples import COMING_FROM, ROOT, START, execute, sections

# ---- messages --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sampa.METHODS)
@pytest.mark.parametrize("kind", [iter, list])
def test_parameters_and_a_class_in_place_of_the_base_are_refused(name: str, kind: Any) -> None:
    """The form of davda54/sam and pytorch_optimizer."""
    message = r"base must be a torch optimizer, got \w+; build it first.*sampa\.SAM\(torch\.optim"
    with pytest.raises(TypeError, match=message):
        sampa.METHODS[name](kind(tiny_mlp().parameters()), torch.optim.SGD, lr=0.1, momentum=0.9)
    with pytest.raises(TypeError, match=message):  # the form that its README shows
        sampa.METHODS[name](kind(tiny_mlp().parameters()), torch.optim.SGD, rho=0.05, lr=0.1)


def test_a_variant_takes_its_radius_by_position_too() -> None:
    method: Any = sampa.METHODS["sampa-0"](sgd(tiny_mlp()), 0.3).method
    assert (method.rho, method.lam) == (0.3, 0.0)


@pytest.mark.parametrize("make", [sampa.Base, sampa.OptGD])
def test_a_method_without_hyper_parameters_refuses_one(make: Any) -> None:
    with pytest.raises(TypeError, match=r"has no hyper-parameters, got 0\.1 after the base"):
        make(sgd(tiny_mlp()), 0.1)
    with pytest.raises(TypeError, match=r"did you mean seed="):
        make(sgd(tiny_mlp()), sead=1)


@pytest.mark.parametrize("name", ["first_step", "second_step"])
def test_the_halves_of_a_step_name_the_whole(name: str) -> None:
    optimizer: Any = sampa.SAM(sgd(tiny_mlp()))
    with pytest.raises(AttributeError, match=rf"(?s){name}.*optimizer\.step\(loss_fn, batch\)"):
        getattr(optimizer, name)(zero_grad=True)
    assert not hasattr(optimizer, name)
    assert not hasattr(optimizer, "nothing_of_the_kind")
    copy.deepcopy(optimizer)
    pickle.loads(pickle.dumps(optimizer))


@pytest.mark.parametrize(
    ("make", "wrong", "right"),
    [
        (sampa.SAMPa, "lamda", "lam"),
        (sampa.SAMPa, "bootstrp", "bootstrap"),
        (sampa.GSAM, "alhpa", "alpha"),
        (sampa.SparseSAM, "sparcity", "sparsity"),
        (sampa.SAM, "geometri", "geometry"),
        (sampa.SAM, "max_nrom", "max_norm"),
    ],
)
def test_a_misspelled_keyword_names_the_methods_own(make: Any, wrong: str, right: str) -> None:
    message = rf"{wrong} is not a hyper-parameter of this method .*did you mean {right}=\?"
    with pytest.raises(TypeError, match=message):
        make(sgd(tiny_mlp()), **{wrong: 0.1})


def test_a_missing_method_names_the_nearest() -> None:
    with pytest.raises(KeyError, match=r"got 'samp'; did you mean 'sampa'"):
        sampa.METHODS["samp"]
    assert sampa.METHODS.get("samp") is None
    assert "samp" not in sampa.METHODS


# ---- the page: before and after --------------------------------------------------------------

PAIRS = {section.title: section.blocks for section in sections(COMING_FROM) if section.blocks}
TIMM, SCRIPT = "timm", "The published SAMPa script"
MODULES: dict[str, Any] = {
    "davda54/sam": stand_ins.DAVDA54,
    "pytorch_optimizer": {},
    "Composer": stand_ins.COMPOSER,
    TIMM: stand_ins.TIMM,
    SCRIPT: {},
}


@pytest.fixture(autouse=True)
def _doubles() -> Any:
    """Sums in another order differ by less than 1e-12 then, and all else by more."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def run(block: str, title: str) -> dict[str, Any]:
    """What a block of a section leaves, after the beginning of the how-to pages."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with stand_ins.installed(**MODULES[title]):
        execute([*START.blocks, block], COMING_FROM, namespace)
    return namespace


ROUNDING = 1e-12
FLOAT32_NORM = 1e-8  # pytorch_optimizer's norm of a gradient is a float32 number in any case


def assert_same_weights(
    a: Any, b: Any, names: str = "weight|bias", tolerance: float = ROUNDING
) -> None:
    for (name, ours), theirs in zip(a.state_dict().items(), b.state_dict().values(), strict=True):
        if re.search(names, name):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance, msg=name)


def test_each_library_of_the_page_has_a_pair() -> None:
    assert {*PAIRS} == {*MODULES}
    assert [len(PAIRS[title]) for title in MODULES] == [2, 2, 2, 2, 1]


@pytest.mark.parametrize("title", ["davda54/sam", "pytorch_optimizer", "Composer"])
def test_a_loop_trains_the_same_weights_after_as_before(title: str) -> None:
    before, after = (run(block, title) for block in PAIRS[title])
    # BatchNorm's statistics are among what has "running" in its name.
    names = "weight|bias|running" if title == "davda54/sam" else "weight|bias"
    tolerance = FLOAT32_NORM if title == "pytorch_optimizer" else ROUNDING
    assert_same_weights(after["model"], before["model"], names, tolerance)
    torch.testing.assert_close(after["loss"], before.get("loss", after["loss"]))
    untrained: dict[str, Any] = {}
    execute(START.blocks, COMING_FROM, untrained)
    assert not torch.allclose(flat(after["model"]), flat(untrained["model"]), atol=1e-3)


def test_what_timm_builds_stays_and_without_a_radius_trains_the_same_weights() -> None:
    before, after = PAIRS[TIMM]
    plain, flat_, none = run(before, TIMM), run(after, TIMM), run(without_radius(after), TIMM)
    assert_same_weights(none["model"], plain["model"])
    assert_same_weights(none["ema"], plain["ema"])
    assert none["optimizer"].param_groups[0]["lr"] == plain["optimizer"].param_groups[0]["lr"]
    assert not torch.allclose(flat(flat_["model"]), flat(plain["model"]), atol=1e-6)


def without_radius(block: str) -> str:
    assert block.count("rho=0.05") == 1
    return block.replace("rho=0.05", "rho=0.0")


def test_the_published_script_trains_the_same_weights() -> None:
    command = re.search(r"^python train\.py (.*)$", (ROOT / COMING_FROM).read_text(), re.MULTILINE)
    assert command is not None
    options = dict(re.findall(r"--(\w+) (\S+)", command[1]))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    execute(START.blocks, COMING_FROM, namespace)
    numbers: Any = {k: int(v) if k == "epochs" else float(v) for k, v in options.items()}
    stand_ins.sampa_script(namespace["model"], namespace["loader"], **numbers)
    assert_same_weights(run(PAIRS[SCRIPT][0], SCRIPT)["model"], namespace["model"])


def peer_sam(params: Any, base: Any, **options: Any) -> Any:
    peers = pytest.importorskip("pytorch_optimizer")
    return peers.SAM(params, base, **options)


@pytest.mark.parametrize(
    ("peer", "tolerance"), [(stand_ins.Davda54SAM, ROUNDING), (peer_sam, FLOAT32_NORM)]
)
def test_adaptive_sam_of_others_is_ours_with_all_tensors_and_no_eta(
    peer: Any, tolerance: float
) -> None:
    """A row of two tables."""
    one, two = tiny_mlp(), tiny_mlp()
    theirs = peer(one.parameters(), torch.optim.SGD, rho=2.0, adaptive=True, lr=0.1)
    base = torch.optim.SGD(two.parameters(), lr=0.1)
    ours = sampa.ASAM(base, 2.0, normalize_bias=True, eta=0)
    for batch in vector_batches(5):
        for finish in (theirs.first_step, theirs.second_step):
            cross_entropy_of(one)(batch).backward()
            finish(zero_grad=True)
        ours.step(cross_entropy_of(two), batch)
    assert_same_weights(two, one, tolerance=tolerance)


def test_composers_interval_is_a_row_of_coins() -> None:
    one, two = tiny_mlp(), tiny_mlp()
    base = torch.optim.SGD(one.parameters(), lr=0.1)
    theirs = stand_ins.ComposerSAM(0.05, interval=3)
    coins = [(t + 1) % 3 == 0 for t in range(7)]
    ours = sampa.RST(torch.optim.SGD(two.parameters(), lr=0.1), 0.05, coins=coins)
    for t, batch in enumerate(vector_batches(7)):

        def closure(batch: Any = batch) -> Tensor:
            base.zero_grad()
            loss = cross_entropy_of(one)(batch)
            loss.backward()
            return loss

        theirs.step(t, base, closure)
        ours.step(cross_entropy_of(two), batch)
        assert ours.last is not None
        assert ours.last.probes == 1 + coins[t]
    assert_same_weights(two, one)
