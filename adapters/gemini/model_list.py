"""Google's list of models, towards clients. It is one page, however long."""

from collections.abc import Sequence
from typing import Any

import orjson

from adapters.canonical.abilities import EMBED, GENERATE
from adapters.front import ListedModel

__all__ = ["GeminiModelList"]

_METHODS = {GENERATE: ["generateContent", "countTokens"], EMBED: ["embedContent"]}


class GeminiModelList:
    """GET /v1beta/models."""

    def render_models(self, models: Sequence[ListedModel]) -> bytes:
        return orjson.dumps({"models": [_row(model) for model in models]})

    def render_model(self, model: ListedModel) -> bytes:
        return orjson.dumps(_row(model))


def _row(model: ListedModel) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": f"models/{model.id}",
        "baseModelId": model.id,
        "version": "1",
        "displayName": model.id,
        "supportedGenerationMethods": [
            method for ability, methods in _METHODS.items() if ability in model.abilities for method in methods
        ],
    }
    if model.context is not None:
        found["inputTokenLimit"] = model.context
    return found
