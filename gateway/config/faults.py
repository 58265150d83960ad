"""What is wrong with a run.yaml, and where. Owns the one form in which it is said: `file:line: path: what`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ConfigError", "Fault", "Location", "hide_quoted", "render_location"]

Location = tuple[str | int, ...]
"""The way to a value: keys and list positions."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong. `line` counts from 1; 0 is the file as a whole."""

    location: Location
    line: int
    message: str


class ConfigError(Exception):
    """The configuration cannot be used. `faults` holds everything that is wrong, in the order of the lines."""

    def __init__(self, path: Path, faults: Iterable[Fault]) -> None:
        self.path = path
        self.faults = tuple(sorted(faults, key=lambda fault: fault.line))
        super().__init__("\n".join(self.lines))

    @property
    def lines(self) -> tuple[str, ...]:
        """One line of text for each fault."""
        return tuple(_render(self.path, fault) for fault in self.faults)


def _render(path: Path, fault: Fault) -> str:
    where = f"{path}:{fault.line}" if fault.line else str(path)
    return ": ".join(part for part in (where, render_location(fault.location), fault.message) if part)


def render_location(location: Location) -> str:
    """`("auth", "keys", 0, "id")` -> `auth.keys[0].id`."""
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def hide_quoted(message: str) -> str:
    """The message without what it quotes: for a place whose value came from a `${...}`."""
    return re.sub(r"'[^']*'", "'***'", message)
