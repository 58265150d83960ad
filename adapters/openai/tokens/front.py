"""Tokenize, detokenize and the count of a chat prompt towards clients."""

import orjson
from msgspec.structs import replace

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.request import Request, TemplateOptions
from adapters.canonical.tokens import DetokenizeRequest, TokenizeRequest, Tokens
from adapters.front import AnswerHead
from adapters.json_fields import parse_object
from adapters.openai.chat.front import ChatFront
from adapters.openai.chat.parse import parse_chat
from adapters.openai.request_fields import take_model
from adapters.openai.vocabulary import BOOL, COMPLETIONS, TEXT, TOKEN_IDS
from adapters.raw_json import fragments

__all__ = ["ChatTokenCountFront", "DetokenizeFront", "TokenizeFront"]


class ChatTokenCountFront(ChatFront):
    """POST /v1/chat/completions/input_tokens: a chat body, answered by the tokens of its prompt."""

    def parse_count(self, body: bytes, *, max_depth: int) -> Request:
        """Raises InvalidRequest, naming the path."""
        return replace(parse_chat(body, max_depth=max_depth), stream=False)

    def render_count(self, tokens: int) -> bytes:
        return orjson.dumps({"object": "chat.completion.input_tokens", "input_tokens": tokens})


class TokenizeFront:
    """POST /tokenize: the tokens of a `prompt`, or of `messages` in the model's template."""

    id_prefix = "tokn-"

    def parse(self, body: bytes, *, max_depth: int, request_id: str) -> TokenizeRequest:
        """Raises InvalidRequest, naming the path."""
        fields = parse_object(body, max_depth=max_depth)
        with_texts = fields.take("return_token_strs", BOOL) or False
        if ("prompt" in fields) == ("messages" in fields):
            raise InvalidRequest.at("prompt", "expected either prompt or messages")
        if "messages" in fields:
            # The rest of the body is a chat request, whose parser takes it from its bytes.
            chat = fragments(fields.rest())
            request = parse_chat(orjson.dumps(chat), max_depth=max_depth)
            return TokenizeRequest(request=replace(request, request_id=request_id), with_texts=with_texts)
        special = fields.take("add_special_tokens", BOOL)
        request = Request(
            model=take_model(fields),
            dialect=COMPLETIONS,
            prompts=(fields.require("prompt", TEXT),),
            template=None if special is None else TemplateOptions(add_special_tokens=special),
            request_id=request_id,
            extras=fields.rest(),
        )
        return TokenizeRequest(request=request, with_texts=with_texts)

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


class DetokenizeFront:
    """POST /detokenize: the text of `tokens`."""

    id_prefix = "detokn-"

    def parse(self, body: bytes, *, max_depth: int, request_id: str) -> DetokenizeRequest:
        """Raises InvalidRequest, naming the path."""
        fields = parse_object(body, max_depth=max_depth)
        request = DetokenizeRequest(
            model=take_model(fields), ids=tuple(fields.require("tokens", TOKEN_IDS)), request_id=request_id
        )
        fields.refuse_rest()
        return request

    def render(self, request: DetokenizeRequest, result: str, head: AnswerHead) -> bytes:
        """The body of the answer."""
        return orjson.dumps({"prompt": result})
