"""Functions that torch.compile leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def outside_of_graphs(function: Function) -> Function:
    """Let a compiled model call this function as it is, between its graphs.

    It is what torch.compiler.disable comes to, without importing the compiler: that takes as long
    as importing torch, also where nothing is trained.
    """
    function._torchdynamo_disable = True  # pyright: ignore[reportFunctionMemberAccess]
    return function
