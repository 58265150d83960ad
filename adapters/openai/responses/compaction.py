"""A long input made short: the model sums it up, and the sum travels sealed (POST /v1/responses/compact).

What comes out are the user's messages as they were, and one compaction item that stands for everything else.
"""

from collections.abc import Sequence

import orjson
from msgspec import Raw, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from adapters.canonical.errors import BadUpstreamResponse
from adapters.canonical.messages import USER, Message, Text, text_of
from adapters.canonical.request import Request
from adapters.canonical.result import Result
from adapters.canonical.usage import Usage
from adapters.front import AnswerHead
from adapters.openai.responses.output import item_id
from adapters.openai.responses.sealing import ClientSeal
from adapters.openai.responses.usage import response_usage_object
from adapters.openai.responses.vocabulary import COMPACTION, ENCRYPTED_CONTENT, MESSAGE

__all__ = [
    "COMPACTION_PREFIX",
    "compaction_object",
    "native_compaction_object",
    "summary_request",
    "token_count_object",
]

COMPACTION_PREFIX = "cmpct_"
_ASK = (
    "Sum up the conversation above, so that it can go on from the summary alone. Keep every fact, decision, name, "
    "number, file, result of a tool and open question that may matter later, and what the user asked for last. "
    "Write the summary and nothing else."
)
_LEAST_TOKENS = 2048
"""What a summary may have in any case, thoughts included."""
_HEAD = "Summary of the conversation until here:\n\n"


class _Item(Struct):
    type: str = ""
    role: Raw = Raw()


_ITEM = Decoder(_Item)


def summary_request(request: Request, *, input_tokens: int) -> Request:
    """The request for the summary of what a request holds, which comes to about `input_tokens`: a summary that is
    longer makes nothing short, so a model that does not find its end is cut."""
    messages, paths = request.messages or (), request.message_paths or ()
    ask = Message(role=USER, parts=(Text(text=_ASK),))
    return replace(
        request,
        messages=(*messages, ask),
        message_paths=(*paths, "input"),
        stream=False,
        max_tokens=request.max_tokens or max(input_tokens, _LEAST_TOKENS),
        tools=None,
        tool_choice=None,
        parallel_tool_calls=None,
    )


def compaction_object(head: AnswerHead, items: Sequence[bytes], result: Result, seal: ClientSeal) -> bytes:
    """`items` is the whole input, each with a type and an id. Raises BadUpstreamResponse where no summary was made."""
    summary = text_of(result.choices[0].parts).strip()
    if not summary:
        raise BadUpstreamResponse("the model gave no summary")
    kept = [item for item in items if _is_from_user(item)]
    told = {"type": MESSAGE, "role": USER, "content": _HEAD + summary}
    compaction = {
        "id": item_id("cmp", head.id.removeprefix(COMPACTION_PREFIX), len(kept)),
        "type": COMPACTION,
        ENCRYPTED_CONTENT: seal.seal_items([orjson.dumps(told)]),
    }
    return native_compaction_object(head, [*kept, orjson.dumps(compaction)], result.usage)


def native_compaction_object(head: AnswerHead, items: Sequence[bytes], usage: Usage | None) -> bytes:
    """The same of items as they stand in the output already."""
    return orjson.dumps(
        {
            "id": head.id,
            "object": "response.compaction",
            "created_at": head.created,
            "output": [orjson.Fragment(item) for item in items],
            "usage": response_usage_object(usage or Usage()),
        }
    )


def token_count_object(tokens: int) -> bytes:
    """The answer of POST /v1/responses/input_tokens."""
    return orjson.dumps({"object": "response.input_tokens", "input_tokens": tokens})


def _is_from_user(raw: bytes) -> bool:
    item = _ITEM.decode(raw)
    return item.type == MESSAGE and bytes(item.role) == b'"user"'
