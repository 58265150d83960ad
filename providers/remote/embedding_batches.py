"""Embeddings from an API that takes so many inputs in one call: it is asked for each batch, several at once."""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult
from adapters.canonical.usage import Usage
from providers.choices import MAX_PARALLEL

__all__ = ["embed_in_batches"]

EmbedCall = Callable[[EmbeddingRequest], Awaitable[EmbeddingResult]]


async def embed_in_batches(call: EmbedCall, request: EmbeddingRequest, most: int) -> EmbeddingResult:
    """All vectors in order. The first error is raised and ends every call."""
    if len(request.inputs) <= most:
        return await call(request)
    places = asyncio.Semaphore(MAX_PARALLEL)

    async def ask(start: int) -> EmbeddingResult:
        some = slice(start, start + most)
        titles = None if request.titles is None else request.titles[some]
        async with places:
            return await call(replace(request, inputs=request.inputs[some], titles=titles))

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(start)) for start in range(0, len(request.inputs), most)]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    results = [task.result() for task in tasks]
    counts = [result.usage.prompt_tokens for result in results if result.usage is not None]
    known = [count for count in counts if count is not None]
    return EmbeddingResult(
        vectors=tuple([vector for result in results for vector in result.vectors]),
        usage=Usage(prompt_tokens=sum(known)) if len(known) == len(results) else None,
        request_id=results[0].request_id,
    )
