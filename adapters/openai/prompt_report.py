"""What an answer says about its prompt, as fields of vLLM and TensorRT-LLM beside OpenAI's own."""

import orjson

from adapters.canonical.events import PromptReported
from adapters.canonical.usage import TokenLogprob

__all__ = ["prompt_fields"]


def prompt_fields(event: PromptReported) -> dict[str, bytes]:
    """Raw JSON by name: those that the event has."""
    fields = {}
    if event.token_ids is not None:
        fields["prompt_token_ids"] = orjson.dumps(event.token_ids)
    if event.logprobs is not None:
        fields["prompt_logprobs"] = orjson.dumps([_entry(token) for token in event.logprobs])
    if event.logits is not None:
        fields["context_logits"] = event.logits
    return fields


def _entry(token: TokenLogprob) -> dict[str, object] | None:
    """By token id, the likeliest tokens at a place and the prompt's own; None for the first, which follows nothing.

    rank: 1 is the likeliest.
    """
    if token.logprob is None:
        return None
    entries: dict[str, object] = {
        str(token.token_id): {"logprob": token.logprob, "rank": token.rank, "decoded_token": token.text}
    }
    for rank, top in enumerate(token.top, 1):
        entries[str(top.token_id)] = {"logprob": top.logprob, "rank": rank, "decoded_token": top.text}
    return entries
