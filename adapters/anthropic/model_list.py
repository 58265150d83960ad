"""Anthropic's list of models, towards clients. It is one page, however long."""

from collections.abc import Sequence
from typing import Any

import orjson

from adapters.front import ListedModel
from adapters.timestamps import timestamp

__all__ = ["AnthropicModelList"]


class AnthropicModelList:
    """GET /v1/models."""

    def render_models(self, models: Sequence[ListedModel]) -> bytes:
        rows = [_row(model) for model in models]
        return orjson.dumps(
            {
                "data": rows,
                "has_more": False,
                "first_id": rows[0]["id"] if rows else None,
                "last_id": rows[-1]["id"] if rows else None,
            }
        )

    def render_model(self, model: ListedModel) -> bytes:
        return orjson.dumps(_row(model))


def _row(model: ListedModel) -> dict[str, Any]:
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.id,
        "created_at": timestamp(model.created),
        "lifecycle": "active",
        "max_input_tokens": model.context,
    }
