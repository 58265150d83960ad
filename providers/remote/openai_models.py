"""The list of models of an OpenAI-shaped server: GET /models."""

from msgspec import Struct
from msgspec.json import Decoder

from adapters.upstream import Upstream
from providers.base import ModelEntry
from providers.remote.http import HttpClient
from providers.remote.question import fetch_list

__all__ = ["fetch_openai_models"]


class _ModelRow(Struct):
    """The window has a name in each vendor: vLLM and SGLang, OpenRouter and Together, Groq."""

    id: str
    created: float | None = None
    owned_by: str | None = None
    max_model_len: int | None = None
    context_length: int | None = None
    context_window: int | None = None


class _ModelList(Struct):
    data: list[_ModelRow]


_decode_models = Decoder(_ModelList | list[_ModelRow], strict=False).decode


async def fetch_openai_models(client: HttpClient, upstream: Upstream, path: str = "/models") -> tuple[ModelEntry, ...]:
    """`upstream` reads a refusal."""
    found = await fetch_list(client, upstream, path, _decode_models)
    return tuple([_entry(row) for row in (found.data if isinstance(found, _ModelList) else found)])


def _entry(row: _ModelRow) -> ModelEntry:
    context = row.max_model_len or row.context_length or row.context_window
    created = None if row.created is None else int(row.created)
    return ModelEntry(id=row.id, created=created, owned_by=row.owned_by, context=context)
