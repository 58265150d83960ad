"""GET /props: what clients of llama.cpp's server ask about the model that it runs."""

from collections.abc import Sequence

import orjson

from adapters.front import ListedModel

__all__ = ["Props"]


class Props:
    """A model, and the window of a request; a list is that of its first model."""

    def render_models(self, models: Sequence[ListedModel]) -> bytes:
        return self.render_model(models[0])

    def render_model(self, model: ListedModel) -> bytes:
        inputs = model.gateway.get("input")
        window = {} if model.context is None else {"n_ctx": model.context}
        return orjson.dumps(
            {
                "default_generation_settings": window,
                "total_slots": 1,
                "model_alias": model.id,
                "model_path": model.id,
                "modalities": {
                    "vision": isinstance(inputs, list | tuple) and "image" in inputs,
                    "audio": isinstance(inputs, list | tuple) and "audio" in inputs,
                },
            }
        )
