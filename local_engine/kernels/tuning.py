"""Which variant of a kernel is fastest on this machine: measured once for each GPU and shape, and kept on disk.

Owns the file and its keys. Knows no kernels: whoever has variants gives them and times them. The file is a cache: where
it cannot be read or written, variants are measured again.
"""

import json
import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["Tuning"]

_logger = logging.getLogger(__name__)


class Tuning:
    """The fastest variants known for one device. path: None keeps them as long as this object lives.

    device: what machines that run kernels alike have in common.
    """

    def __init__(self, path: Path | None, device: str) -> None:
        self._path = path
        self._device = device
        self._known = {} if path is None else _read(path).get(device, {})
        self._measured = False

    def best(self, operation: str, shape: str, variants: Sequence[int], measure: Callable[[int], float]) -> int:
        """The one of `variants` for which `measure` gives the least, by the file if it has been asked before."""
        key = f"{operation} {shape} of {','.join(map(str, variants))}"
        known = self._known.get(key)
        if known is not None and known in variants:
            return known
        found = min(variants, key=measure)
        self._known[key] = found
        self._measured = True
        _logger.info("%s, %s: %d of %s is fastest on %s", operation, shape, found, list(variants), self._device)
        return found

    def save(self) -> None:
        """Adds what was measured to the file. Other processes may do so too: the last to write a key has its say."""
        if self._path is None or not self._measured:
            return
        known = _read(self._path)
        known[self._device] = known.get(self._device, {}) | self._known
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", dir=self._path.parent, prefix=self._path.name, delete=False, encoding="utf-8"
            ) as file:
                json.dump(known, file, indent=1, sort_keys=True)
            os.replace(file.name, self._path)
        except OSError as error:
            _logger.warning("what was measured of GPU kernels could not be kept: %s", error)


def _read(path: Path) -> dict[str, dict[str, int]]:
    """What the file says; nothing if there is none, or it is not one of ours."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(values, dict):
        return {}
    return {
        device: {key: value for key, value in found.items() if type(value) is int}
        for device, found in values.items()
        if isinstance(found, dict)
    }
