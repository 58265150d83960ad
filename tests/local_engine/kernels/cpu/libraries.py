"""The builds of the kernels that this machine runs, each to be tested."""

from collections.abc import Sequence

from local_engine.kernels.cpu.library import INSTRUCTION_SETS, Library, open_library

__all__ = ["runnable_libraries"]


def runnable_libraries() -> Sequence[Library]:
    """The builds for this CPU, the best one first. Fails where there is none: the tests' machine has a compiler."""
    portable = open_library("portable")
    assert portable is not None, "the CPU kernels are not built: python setup.py build_ext --inplace"
    found = [open_library(name) for name in INSTRUCTION_SETS if portable.runs(name)]
    return [library for library in found if library is not None]
