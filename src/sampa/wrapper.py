"""An optimizer around another one, which torch and its schedulers take for that one."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer


class Wrapper(Optimizer):
    """Its `param_groups` and `state` are the base's own, so a scheduler may be attached to either.

    They are the same objects whatever replaces them: loading a state gives the base new ones.
    """

    def __init__(self, base: Optimizer) -> None:
        self.base = base
        self._adopt_base()

    def _adopt_base(self) -> None:
        """What torch's constructor does, except making groups and state: those are the base's."""
        Optimizer.__setstate__(self, {"defaults": self.base.defaults})

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.base.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.base.param_groups = groups

    @property
    def state(self) -> Any:
        return self.base.state

    @state.setter
    def state(self, state: Any) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.base.state = state

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.base.add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.base.zero_grad(set_to_none)
