"""Prompts of a local model as tokens, and tokens as text: the ability `providers.abilities.Tokenizer`."""

import asyncio

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.request import Request
from adapters.canonical.tokens import DetokenizeRequest, TokenizeRequest, Tokens
from providers.abilities import lacks
from providers.local.local_encoder import LocalEncoder
from providers.local.local_model import LocalModel
from providers.local.prompt import model_prompt
from providers.local.request_images import RequestImages
from providers.local.tokenizer import Tokenizer

__all__ = ["detokenize", "prompt_ids", "tokenize"]


async def prompt_ids(model: LocalModel | LocalEncoder, request: Request, images: RequestImages) -> tuple[int, ...]:
    """The prompt as the engine would get it. Raises InvalidRequest."""
    if isinstance(model, LocalModel):
        return (await asyncio.to_thread(model_prompt, model, request, await images.ready(model.images))).ids
    (prompt,) = request.prompts or (None,)
    if prompt is None:
        raise lacks(model.name, "has no chat template; give it a prompt")
    if isinstance(prompt, tuple):
        return prompt
    special = request.template.add_special_tokens if request.template is not None else None
    ids = await asyncio.to_thread(model.tokenizer.encode, prompt, add_special_tokens=special is not False)
    return tuple(ids)


async def tokenize(model: LocalModel | LocalEncoder, request: TokenizeRequest, images: RequestImages) -> Tokens:
    """Raises InvalidRequest for what is no prompt of this model."""
    ids = await prompt_ids(model, request.request, images)
    context = model.engine.max_context if isinstance(model, LocalModel) else model.engine.info.max_tokens
    texts = tuple([_text(model.tokenizer, (token,)) for token in ids]) if request.with_texts else None
    return Tokens(ids=ids, texts=texts, context=context)


def detokenize(model: LocalModel | LocalEncoder, request: DetokenizeRequest) -> str:
    """Raises InvalidRequest for an id that the vocabulary lacks."""
    size = model.tokenizer.vocab_size
    for place, token in enumerate(request.ids):
        if token >= size:
            raise InvalidRequest.at(f"tokens[{place}]", f"there is no token {token}, the vocabulary has {size}")
    if isinstance(model, LocalEncoder):  # its pieces say where words begin, which their bytes do not
        text: str = model.tokenizer.backend.decode(request.ids, skip_special_tokens=False)
        return text
    return _text(model.tokenizer, request.ids)


def _text(tokenizer: Tokenizer, ids: tuple[int, ...]) -> str:
    """What the tokens stand for; a part of a character becomes U+FFFD."""
    return b"".join(map(tokenizer.token_bytes, ids)).decode(errors="replace")
