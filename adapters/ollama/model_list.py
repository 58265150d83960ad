"""Ollama's lists of models, towards clients: all, those in memory, and what is to be known of one."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import orjson

from adapters.canonical.abilities import EMBED, GENERATE
from adapters.canonical.model_memory import ModelMemory
from adapters.front import ListedModel
from adapters.timestamps import timestamp

__all__ = ["ModelCards", "RunningModels", "Tags"]

_ARCHITECTURE = "gateway"
_CAPABILITIES = {GENERATE: ["completion", "tools"], EMBED: ["embedding"]}
_VISION, _IMAGE = "vision", "image"
_FOR_EVER = "2318-12-31T00:00:00Z"


class Tags:
    """GET /api/tags."""

    def render_models(self, models: Sequence[ListedModel]) -> bytes:
        return orjson.dumps({"models": [_row(model) for model in models]})

    def render_model(self, model: ListedModel) -> bytes:
        return orjson.dumps(_row(model))


class RunningModels:
    """GET /api/ps: models that are in memory, which is where the gateway keeps them."""

    def render_models(self, models: Sequence[ListedModel]) -> bytes:
        return orjson.dumps({"models": [_running(model) for model in models]})

    def render_model(self, model: ListedModel) -> bytes:
        return orjson.dumps(_running(model))


class ModelCards:
    """POST /api/show."""

    def render_models(self, models: Sequence[ListedModel]) -> bytes:
        return orjson.dumps({"models": [_card(model) for model in models]})

    def render_model(self, model: ListedModel) -> bytes:
        return orjson.dumps(_card(model))


def _row(model: ListedModel) -> dict[str, Any]:
    """Sizes are not known here; the digest is of the name."""
    return {
        "name": model.id,
        "model": model.id,
        "modified_at": timestamp(model.created),
        "size": 0,
        "digest": sha256(model.id.encode()).hexdigest(),
        "details": _details(model),
    }


def _running(model: ListedModel) -> dict[str, Any]:
    memory = model.memory or ModelMemory()
    expires_at = _FOR_EVER if memory.expires_at is None else timestamp(int(memory.expires_at))
    found = {**_row(model), "size": memory.size, "size_vram": memory.vram, "expires_at": expires_at}
    del found["modified_at"]
    if model.context is not None:
        found["context_length"] = model.context
    return found


def _card(model: ListedModel) -> dict[str, Any]:
    info: dict[str, Any] = {"general.architecture": _ARCHITECTURE}
    if model.context is not None:
        info[f"{_ARCHITECTURE}.context_length"] = model.context
    return {
        "modelfile": f"FROM {model.id}\n",
        "parameters": "",
        "template": "{{ .Prompt }}",
        "details": _details(model),
        "model_info": info,
        "capabilities": _capabilities(model),
        "modified_at": timestamp(model.created),
    }


def _capabilities(model: ListedModel) -> list[str]:
    inputs = model.gateway.get("input")
    reads_images = isinstance(inputs, list) and _IMAGE in inputs
    found = [word for ability, words in _CAPABILITIES.items() if ability in model.abilities for word in words]
    return [*found, _VISION] if reads_images else found


def _details(model: ListedModel) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "",
        "family": model.owned_by,
        "families": [model.owned_by],
        "parameter_size": "",
        "quantization_level": "",
    }
