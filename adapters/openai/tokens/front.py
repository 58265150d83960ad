"""Tokenize, detokenize and the count of a chat prompt towards clients: in vLLM's words, which name a model, and in
those of llama.cpp's server, which need not."""

import orjson
from msgspec.structs import replace

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.request import Request, TemplateOptions
from adapters.canonical.tokens import DetokenizeRequest, TokenizeRequest, Tokens
from adapters.field_types import BOOL, TEXT
from adapters.front import AnswerHead
from adapters.json_fields import JsonObject, parse_object
from adapters.openai.chat.front import ChatFront
from adapters.openai.chat.parse import parse_chat
from adapters.openai.request_fields import take_model
from adapters.openai.vocabulary import COMPLETIONS, TOKEN_IDS
from adapters.raw_json import fragments

__all__ = ["ChatTokenCountFront", "DetokenizeFront", "TokenizeFront"]

_CONTENT = "content"


class ChatTokenCountFront(ChatFront):
    """POST /v1/chat/completions/input_tokens: a chat body, answered by the tokens of its prompt."""

    def parse_count(self, body: bytes, *, max_depth: int) -> Request:
        """Raises InvalidRequest, naming the path."""
        return replace(parse_chat(body, max_depth=max_depth), stream=False)

    def render_count(self, tokens: int) -> bytes:
        return orjson.dumps({"object": "chat.completion.input_tokens", "input_tokens": tokens})


class TokenizeFront:
    """POST /tokenize: the tokens of a `prompt`, of `messages` in the model's template, or of llama.cpp's `content`, to
    which nothing is added by itself."""

    id_prefix = "tokn-"

    def parse(self, body: bytes, *, max_depth: int, request_id: str) -> TokenizeRequest:
        """Raises InvalidRequest, naming the path."""
        fields = parse_object(body, max_depth=max_depth)
        with_texts = fields.take("return_token_strs", BOOL) or False
        if _CONTENT in fields:
            name, is_special = fields.take("model", TEXT) or "", fields.take("add_special", BOOL) or False
            return _of_text(fields, name, _CONTENT, is_special, request_id=request_id)
        if ("prompt" in fields) == ("messages" in fields):
            raise InvalidRequest.at("prompt", "expected either prompt or messages")
        if "messages" in fields:
            # The rest of the body is a chat request, whose parser takes it from its bytes.
            chat = fragments(fields.rest())
            request = parse_chat(orjson.dumps(chat), max_depth=max_depth)
            return TokenizeRequest(request=replace(request, request_id=request_id), with_texts=with_texts)
        special = fields.take("add_special_tokens", BOOL)
        asked = _of_text(fields, take_model(fields), "prompt", special, request_id=request_id)
        return replace(asked, with_texts=with_texts)

    def render(self, request: TokenizeRequest, result: Tokens, head: AnswerHead) -> bytes:
        """The body of the answer."""
        return orjson.dumps(
            {
                "count": len(result.ids),
                "max_model_len": result.context,
                "tokens": result.ids,
                "token_strs": result.texts,
            }
        )


def _of_text(fields: JsonObject, model: str, name: str, special: bool | None, *, request_id: str) -> TokenizeRequest:
    """A request for the tokens of the text in the field `name`."""
    request = Request(
        model=model,
        dialect=COMPLETIONS,
        prompts=(fields.require(name, TEXT),),
        template=None if special is None else TemplateOptions(add_special_tokens=special),
        request_id=request_id,
        extras=fields.rest(),
    )
    return TokenizeRequest(request=request)


class DetokenizeFront:
    """POST /detokenize: the text of `tokens`, as vLLM's `prompt` and as llama.cpp's `content`."""

    id_prefix = "detokn-"

    def parse(self, body: bytes, *, max_depth: int, request_id: str) -> DetokenizeRequest:
        """Raises InvalidRequest, naming the path."""
        fields = parse_object(body, max_depth=max_depth)
        request = DetokenizeRequest(
            model=fields.take("model", TEXT) or "",
            ids=tuple(fields.require("tokens", TOKEN_IDS)),
            request_id=request_id,
        )
        fields.refuse_rest()
        return request

    def render(self, request: DetokenizeRequest, result: str, head: AnswerHead) -> bytes:
        """The body of the answer."""
        return orjson.dumps({"prompt": result, "content": result})
