"""OpenAI's list of models, towards clients."""

from collections.abc import Sequence
from typing import Any

import orjson

from adapters.front import ListedModel

__all__ = ["CodexModelList", "OpenAIModelList"]

_WINDOW = ("context_window", "max_model_len", "context_length")
"""What Groq, vLLM and OpenRouter call the window in their lists; clients that look for it know one of them."""


class OpenAIModelList:
    """GET /v1/models."""

    def render_models(self, models: Sequence[ListedModel]) -> bytes:
        return orjson.dumps({"object": "list", "data": [_row(model) for model in models]})

    def render_model(self, model: ListedModel) -> bytes:
        return orjson.dumps(_row(model))


class CodexModelList(OpenAIModelList):
    """The same for Codex, which asks with its `client_version` and reads no list without `models`: descriptions in a
    form of its own. Where there are none it goes by those that it brings."""

    def render_models(self, models: Sequence[ListedModel]) -> bytes:
        return super().render_models(models)[:-1] + b',"models":[]}'


def _row(model: ListedModel) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": model.owned_by,
    }
    if model.context is not None:
        row.update(dict.fromkeys(_WINDOW, model.context))
    if model.gateway:
        row["gateway"] = model.gateway
    return row
