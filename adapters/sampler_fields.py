"""Samplers of local servers that OpenAI's API lacks and llama.cpp, KoboldCpp and text-generation-webui spell alike."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from msgspec import Meta, Raw
from msgspec.json import Decoder

from adapters.field_types import FRACTION, OPEN_COUNT
from adapters.json_fields import Decodes

__all__ = ["SAMPLERS", "SAMPLER_ORDER", "has_temperature_last"]

_Breakers = Annotated[list[Annotated[str, Meta(max_length=40)]], Meta(max_length=64)]


class _BreakersDecoder:
    """Texts in a list, which may be JSON in a string and lack its brackets there."""

    _either = Decoder(_Breakers | str)
    _list = Decoder(_Breakers)

    def decode(self, raw: Raw, /) -> list[str]:
        found = self._either.decode(raw)
        if isinstance(found, str):
            return self._list.decode(found if found.lstrip().startswith("[") else f"[{found}]")
        return found


SAMPLERS: Final[Mapping[str, Decodes[Any]]] = {
    "top_n_sigma": Decoder(Annotated[float, Meta(ge=-1, le=100)]),
    "xtc_probability": FRACTION,
    "xtc_threshold": FRACTION,
    "dynatemp_range": Decoder(Annotated[float, Meta(ge=0, le=100)]),
    "dynatemp_exponent": Decoder(Annotated[float, Meta(ge=0, le=100)]),
    "dry_multiplier": Decoder(Annotated[float, Meta(ge=0, le=100)]),
    "dry_base": Decoder(Annotated[float, Meta(ge=1, le=10)]),
    "dry_allowed_length": Decoder(Annotated[int, Meta(ge=0, le=256)]),
    "dry_penalty_last_n": OPEN_COUNT,
    "dry_sequence_breakers": _BreakersDecoder(),
    "repeat_last_n": OPEN_COUNT,
}
"""By name, which is the canonical one too."""

SAMPLER_ORDER: Final = Decoder(list[str] | str)
"""llama.cpp's `samplers`: their names in order, or a letter for each."""
_TEMPERATURE = frozenset(("temperature", "temp", "t"))
_CUTS = frozenset(("top_k", "k", "top_p", "p", "min_p", "m", "typ_p", "typical_p", "typical", "y", "xtc", "x"))


def has_temperature_last(order: Sequence[str]) -> bool:
    """Whether the temperature comes behind the samplers that depend on it. They come in one order themselves."""
    cuts = [place for place, name in enumerate(order) if name in _CUTS]
    return bool(cuts) and any(name in _TEMPERATURE for name in order[max(cuts) + 1 :])
