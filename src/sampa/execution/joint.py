"""Several base optimizers as one, such as Muon for matrices and AdamW for the rest.

The methods see one vector over all parameters: one norm, one lookahead. Each base keeps its own
groups, its state and its schedulers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from sampa.messages import require_base

Bases = Optimizer | Sequence[Optimizer]
"""What a method is given: a base optimizer, or several that train different parameters."""


class Joint(Optimizer):
    """Optimizers that step together.

    Attributes:
        bases: The optimizers, in the order of `param_groups`.
    """

    def __init__(self, bases: Sequence[Optimizer]) -> None:
        self.bases = list(bases)
        self._set_up()

    def _set_up(self) -> None:
        shared = set.intersection(*(set(base.defaults) for base in self.bases))
        shared |= {"rho"}  # Adadelta's: a radius may not be read from its groups
        defaults: dict[str, Any] = {}
        for base in reversed(self.bases):
            defaults |= {name: value for name, value in base.defaults.items() if name in shared}
        # What torch's constructor does, except making groups and state.
        Optimizer.__setstate__(self, {"defaults": defaults})

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The bases' own groups."""
        return [group for base in self.bases for group in base.param_groups]

    @property
    def state(self) -> dict[Tensor, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The bases' own state of each parameter."""
        return {p: state for base in self.bases for p, state in base.state.items()}

    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for base in self.bases:
            base.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for base in self.bases:
            base.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        names = ", ".join(type(base).__name__ for base in self.bases)
        raise ValueError(
            f"add_param_group must know which of the base optimizers is to train it ({names}); "
            "call add_param_group of that one"
        )

    def state_dict(self) -> dict[str, Any]:
        """As of one optimizer: parameters are numbered through all groups."""
        whole: dict[str, Any] = {"state": {}, "param_groups": []}
        others: list[dict[str, Any]] = []
        for base, first in zip(self.bases, self._firsts(), strict=True):
            own = dict(base.state_dict())
            state, groups = own.pop("state"), own.pop("param_groups")
            whole["state"] |= {_moved(number, first): entry for number, entry in state.items()}
            whole["param_groups"] += [_renumbered(group, first) for group in groups]
            others.append(own)
        return whole | {"bases": others}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        groups = state_dict["param_groups"]
        sizes = [len(group["params"]) for group in self.param_groups]
        if [len(group["params"]) for group in groups] != sizes:
            raise ValueError(
                f"the saved groups must have {sizes} parameters, as those of the base optimizers, "
                f"got {[len(group['params']) for group in groups]}; list the same bases in the "
                "same order"
            )
        others = state_dict.get("bases") or [{}] * len(self.bases)
        parts = zip(self.bases, self._firsts(), others, strict=True)
        for base, first, other in list(parts):
            count = len(base.param_groups)
            own, groups = groups[:count], groups[count:]
            end = first + sum(len(group["params"]) for group in own)
            state = {
                _moved(number, -first): entry
                for number, entry in state_dict["state"].items()
                if not isinstance(number, int) or first <= number < end
            }
            renumbered = [_renumbered(group, -first) for group in own]
            base.load_state_dict({**other, "state": state, "param_groups": renumbered})

    def _firsts(self) -> list[int]:
        """The number of each base's first parameter."""
        firsts = [0]
        for base in self.bases[:-1]:
            firsts.append(firsts[-1] + sum(len(group["params"]) for group in base.param_groups))
        return firsts

    def __getstate__(self) -> dict[str, Any]:
        return {"bases": self.bases}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_up()


def _moved(number: Any, by: int) -> Any:
    """The number of a parameter; other keys of a state belong to all."""
    return number + by if isinstance(number, int) else number


def _renumbered(group: dict[str, Any], by: int) -> dict[str, Any]:
    return {**group, "params": [number + by for number in group["params"]]}


def as_one(base: Bases) -> Optimizer:
    """The base optimizer of a method, from one or several.

    Raises:
        TypeError: If one is no optimizer that steps from one given gradient.
        ValueError: If two train the same parameter, or there is none.
    """
    if not isinstance(base, list | tuple) or not base or isinstance(base[0], Tensor | dict):
        require_base(base)
        assert isinstance(base, Optimizer)
        return base
    for one in base:
        require_base(one)
    if len(base) == 1:
        return base[0]
    joint = Joint(base)
    parameters = [p for group in joint.param_groups for p in group["params"]]
    if len(parameters) != len(set(parameters)):
        raise ValueError(
            "base optimizers must train different parameters, got one that two of them have; give "
            "each its own, for instance matrices to Muon and the rest to AdamW"
        )
    return joint
