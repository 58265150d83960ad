"""What a kernel is compiled as."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """One specialisation: the types of the arguments in order, the constants, and how the launcher launches it.

    archs: where it is compiled; one stands for all where another specialisation of the kernel is compiled for each.
    """

    name: str
    kernel: Any
    types: Sequence[str]
    constants: Mapping[str, object]
    warps: int = 4
    stages: int = 3
    least_arch: int = 80
    archs: Sequence[int] = (80, 90, 100)
