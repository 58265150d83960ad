"""Durations as Ollama has them: what an answer took, in nanoseconds; how long a model is to stay, as Go writes it."""

import re
from collections.abc import Mapping

from msgspec import Raw, ValidationError
from msgspec.json import Decoder

from adapters.json_fields import JsonObject

__all__ = ["duration_fields", "keep_alive_value", "take_keep_alive"]

_UNITS_S = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_FOR_EVER_S = 100 * 365 * 24 * 3600.0
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(" + "|".join(_UNITS_S) + ")")
_WHOLE = re.compile(rf"([+-]?)((?:{_PART.pattern})+|0)")
_decode = Decoder(float | str).decode


class _KeepAlive:
    """Decodes a number of seconds, or a text such as "5m"; "" says nothing."""

    def decode(self, raw: Raw, /) -> float | None:
        value = _decode(raw)
        if value == "":
            return None
        seconds = _seconds(value) if isinstance(value, str) else value
        return seconds if 0 <= seconds < _FOR_EVER_S else -1.0


_KEEP_ALIVE = _KeepAlive()


def take_keep_alive(body: JsonObject) -> float | None:
    """Seconds that a model is to stay in memory; what is below 0, or beyond a life, is -1: for ever."""
    return body.take("keep_alive", _KEEP_ALIVE)


def keep_alive_value(seconds: float) -> int | str:
    """Ollama cuts the fraction of a number off, and not that of a text."""
    return int(seconds) if seconds.is_integer() else f"{seconds:f}s"


def _seconds(text: str) -> float:
    found = _WHOLE.fullmatch(text)
    if found is None:
        raise ValidationError('Expected seconds, or a duration such as "5m", "1h30m" or "-1s"')
    seconds = sum((float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text)), 0.0)
    return -seconds if found[1] == "-" else seconds


def duration_fields(*, total_ns: int, load_ns: int, prompt_ns: int, answer_ns: int) -> Mapping[str, bytes]:
    """Raw fields, of which clients reckon tokens a second. What took no time that can be told took one nanosecond,
    since they divide by it."""
    told = {
        "total_duration": total_ns,
        "load_duration": load_ns,
        "prompt_eval_duration": prompt_ns,
        "eval_duration": answer_ns,
    }
    return {name: b"%d" % max(taken, 1) for name, taken in told.items()}
