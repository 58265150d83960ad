"""Typed reading of a model file's configuration, whose every value may be absent or of another type."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import numpy as np

from local_engine.errors import ModelLoadError

__all__ = ["FieldReader"]


class FieldReader:
    """Values by name. A missing one without default, or one of another type, is a ModelLoadError naming it."""

    def __init__(self, path: Path, values: Mapping[str, object]) -> None:
        self._path = path
        self._values = values

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._get(name, default)
        if type(value) is not int:
            self.refuse(f"{name} is {_kind(value)}, expected an integer")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._get(name, default)
        if value == {"__float__": "Infinity"}:  # as transformers writes what JSON has no word for
            return math.inf
        if type(value) is not int and type(value) is not float:
            self.refuse(f"{name} is {_kind(value)}, expected a number")
        try:
            return float(value)
        except OverflowError:  # an integer of more than 308 digits
            self.refuse(f"{name} is too large a number")

    def text(self, name: str, default: str | None = None) -> str:
        value = self._get(name, default)
        if not isinstance(value, str):
            self.refuse(f"{name} is {_kind(value)}, expected a string")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        value = self._get(name, default)
        if not isinstance(value, bool):
            self.refuse(f"{name} is {_kind(value)}, expected true or false")
        return value

    def switch(self, name: str, default: bool) -> bool:
        """True or false, or a number that is 0 for false."""
        value = self._get(name, default)
        return value != 0 if type(value) is int else self.boolean(name, default)

    def table(self, name: str) -> "FieldReader | None":
        """The object under `name`, or None where it is absent or null."""
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.refuse(f"{name} is {_kind(value)}, expected an object")
        return FieldReader(self._path, value)

    def tables(self, name: str) -> "dict[str, FieldReader]":
        """The objects in the object under `name`; empty where it is absent or null."""
        holder = self.table(name)
        inner = {} if holder is None else {key: holder.table(key) for key in holder._values}
        return {key: table for key, table in inner.items() if table is not None}

    def with_defaults(self, defaults: Mapping[str, object]) -> "FieldReader":
        """The same, where names that are absent or null have these values."""
        absent = {name: value for name, value in defaults.items() if self._values.get(name) is None}
        return FieldReader(self._path, {**self._values, **absent})

    def without(self, *names: str) -> "FieldReader":
        """The same, where these names are absent."""
        return FieldReader(self._path, {name: value for name, value in self._values.items() if name not in names})

    def given(self, name: str) -> bool:
        """The file has the name, be its value null."""
        return name in self._values

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings; empty where absent or null."""
        value = self._values.get(name)
        items = [] if value is None else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            self.refuse(f"{name} is {_kind(value)}, expected a list of strings")
        return tuple(items)

    def integers(self, name: str) -> tuple[int, ...]:
        """One integer, or a list or GGUF's array of them; empty where absent or null."""
        value = self._values.get(name)
        if isinstance(value, np.ndarray):
            value = value.tolist()
        items = [] if value is None else value if isinstance(value, list) else [value]
        for item in items:
            if type(item) is not int:
                self.refuse(f"{name} holds {_kind(item)}, expected integers")
        return tuple(items)

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list or GGUF's array of numbers; empty where absent or null."""
        value = self._values.get(name)
        if isinstance(value, np.ndarray):
            value = value.tolist()
        items = [] if value is None else value
        if not isinstance(items, list):
            self.refuse(f"{name} is {_kind(value)}, expected a list of numbers")
        return tuple(FieldReader(self._path, {name: item}).number(name) for item in items)

    def flags_or_integer(self, name: str) -> tuple[bool, ...] | int:
        """A GGUF's array, as truth values, or an integer that is not negative."""
        value = self._get(name, None)
        if isinstance(value, np.ndarray):
            return tuple(map(bool, value.tolist()))
        if type(value) is not int or value < 0:
            self.refuse(f"{name} is {_kind(value)}, expected an array or an integer from 0 on")
        return value

    def optional_number(self, name: str) -> float | None:
        return None if self._values.get(name) is None else self.number(name)

    def optional_integer(self, name: str) -> int | None:
        return None if self._values.get(name) is None else self.integer(name)

    def refuse(self, reason: str) -> NoReturn:
        """Raises ModelLoadError about this file."""
        raise ModelLoadError(self._path, reason)

    def _get(self, name: str, default: object) -> object:
        value = self._values.get(name)
        if value is None:
            if default is None:
                self.refuse(f"{name} is missing")
            return default
        return value


def _kind(value: object) -> str:
    return type(value).__name__
