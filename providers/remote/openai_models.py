"""The list of models of an OpenAI-shaped server: GET /models."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.json import Decoder

from adapters.canonical.errors import BadUpstreamResponse
from adapters.upstream import Upstream
from providers.base import ModelEntry
from providers.remote.exchange import failure_of
from providers.remote.http import HttpClient
from providers.remote.model_list import MAX_LIST_BYTES

__all__ = ["fetch_openai_models"]


class _ModelRow(Struct):
    """The window has a name in each house: vLLM and SGLang, OpenRouter and Together, Groq."""

    id: str
    created: float | None = None
    owned_by: str | None = None
    max_model_len: int | None = None
    context_length: int | None = None
    context_window: int | None = None


class _ModelList(Struct):
    data: list[_ModelRow]


_decode_models = Decoder(_ModelList | list[_ModelRow], strict=False).decode


async def fetch_openai_models(
    client: HttpClient, upstream: Upstream, path: str = "/models", headers: Mapping[str, str] | None = None
) -> tuple[ModelEntry, ...]:
    """`upstream` reads a refusal."""
    with await client.get(path, headers) as answer:
        if answer.status != 200:
            raise await failure_of(client.provider, upstream, answer)
        body = await answer.body(MAX_LIST_BYTES)
    try:
        found = _decode_models(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadUpstreamResponse(f"{client.provider}: GET /models is not a model list") from error
    return tuple([_entry(row) for row in (found.data if isinstance(found, _ModelList) else found)])


def _entry(row: _ModelRow) -> ModelEntry:
    context = row.max_model_len or row.context_length or row.context_window
    created = None if row.created is None else int(row.created)
    return ModelEntry(id=row.id, created=created, owned_by=row.owned_by, context=context)
