"""The files of a sentence-transformers folder that say how a text's vector is made: modules.json and what it names."""

import json
from dataclasses import dataclass
from pathlib import Path

from local_engine.errors import ModelLoadError
from local_engine.layers.pooling import Pooling
from local_engine.loading.fields import FieldReader
from local_engine.loading.safetensors import read_json

__all__ = ["SentenceLayout", "sentence_layout"]

_POOLINGS: dict[str, Pooling] = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
_OLD_POOLINGS: dict[str, Pooling | None] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_max_tokens": None,
    "pooling_mode_mean_sqrt_len_tokens": None,
    "pooling_mode_weightedmean_tokens": None,
}
"""Switches of which one is on; None: not implemented."""


@dataclass(frozen=True, slots=True)
class SentenceLayout:
    """max_tokens: what longer texts are cut to when the model is trained; None is what it can take."""

    pooling: Pooling
    normalized: bool
    max_tokens: int | None


def sentence_layout(folder: Path) -> SentenceLayout | None:
    """None where the folder is none of sentence-transformers. Raises ModelLoadError for a module it does not know."""
    file = folder / "modules.json"
    if not file.is_file():
        return None
    pooling: Pooling | None = None
    normalized = False
    for kind, place in _modules(file):
        match kind:
            case "Transformer" if not place:
                pass
            case "Pooling":
                pooling = _pooling(folder, place)
            case "Normalize":
                normalized = True
            case _:
                raise ModelLoadError(file, f"module {kind} in {place!r} is not supported")
    if pooling is None:
        raise ModelLoadError(file, "names no Pooling module")
    cut = folder / "sentence_bert_config.json"
    longest = FieldReader(cut, read_json(cut)).optional_integer("max_seq_length") if cut.is_file() else None
    return SentenceLayout(pooling, normalized, longest)


def _modules(file: Path) -> list[tuple[str, str]]:
    """The last part of each module's type, and its folder."""
    try:
        rows = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ModelLoadError(file, f"not JSON: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ModelLoadError(file, "expected a list of modules")
    readers = [FieldReader(file, row) for row in rows]
    return [(row.text("type").rpartition(".")[2], row.text("path", "")) for row in readers]


def _pooling(folder: Path, place: str) -> Pooling:
    if not place or Path(place).name != place:
        raise ModelLoadError(folder / "modules.json", f"the Pooling module is in {place!r}, expected a folder's name")
    file = folder / place / "config.json"
    fields = FieldReader(file, read_json(file))
    if fields.given("pooling_mode"):
        name = fields.text("pooling_mode")
        if name not in _POOLINGS:
            fields.refuse(f"pooling_mode {name!r}, supported are {', '.join(_POOLINGS)}")
        return _POOLINGS[name]
    switched = [name for name in _OLD_POOLINGS if fields.boolean(name, False)]
    pooling = _OLD_POOLINGS[switched[0]] if len(switched) == 1 else None
    if pooling is None:
        fields.refuse(f"{' and '.join(switched) or 'no pooling mode'}: supported is one of mean, cls and lasttoken")
    return pooling
