"""What installed packages bring under an entry point, and run.yaml names."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

__all__ = ["build_extension"]


def build_extension(group: str, name: str, options: Mapping[str, object], *, what: str, path: str) -> Any:
    """What the package's factory makes of these options. `what` it is and the `path` of its section are for the error.

    Raises ValueError where no package brings it, or the options can't work.
    """
    for point in entry_points(group=group):
        if point.name == name:
            try:
                return point.load()(**options)
            except TypeError as error:
                raise ValueError(f"{path}.options: {error}") from error
    raise ValueError(f"{path}.use: no installed package brings {what} '{name}'")
