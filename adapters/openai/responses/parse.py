"""A body of the Responses API as a Request, in two steps.

`read_body` takes what the gateway itself answers for: whether the response is kept, what it follows on, its input item
by item. Whoever keeps responses then fetches what stands before the input and behind its references, and
`Asked.request` makes the Request of all of it. Without a store there is nothing before and behind (`refuse_state`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from msgspec import Raw
from msgspec.json import Decoder
from msgspec.structs import replace

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import SYSTEM, Message, Text
from adapters.canonical.request import OutputFormat, Request, Tool
from adapters.field_types import BOOL, NAME, POSITIVE, SHORT_TEXT, TEXT, TEXTS, TOP_LOGPROBS
from adapters.json_fields import JsonObject, parse_object
from adapters.openai.content import message_object, parse_message
from adapters.openai.metadata import METADATA
from adapters.openai.request_fields import build_request, take_model, take_shared
from adapters.openai.response_format import only_format, parse_response_format
from adapters.openai.responses.input_items import InputReader
from adapters.openai.responses.mirror import complete, mirrored_fields, mirrored_text
from adapters.openai.responses.sealing import ClientSeal
from adapters.openai.responses.tool_history import plain_messages
from adapters.openai.responses.vocabulary import ENCRYPTED, INCLUDE, INPUT_MESSAGES, LOGPROBS, OF_REASONING
from adapters.openai.tools import parse_tool_choice, parse_tools
from adapters.openai.vocabulary import RESPONSES, RESPONSES_FIELDS
from adapters.raw_json import RAW_ITEMS

__all__ = ["Asked", "State", "read_body", "refuse_state"]

_CONVERSATION = Decoder(str | dict[str, Raw])
_TRUNCATIONS = ("auto", "disabled")
_MESSAGES = "previous_input_messages"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a request says about keeping. `store` None: not said, which means yes where there is a store."""

    store: bool | None = None
    background: bool = False
    previous_response_id: str | None = None
    conversation: str | None = None

    @property
    def follows(self) -> str | None:
        """The name of the field that puts something before the input."""
        if self.previous_response_id is not None:
            return "previous_response_id"
        return "conversation" if self.conversation is not None else None


class Asked:
    """A body of which the gateway's own fields are taken. `input_items` are the input's, as raw JSON, a text as the
    message that it stands for."""

    def __init__(self, body: JsonObject) -> None:
        self._body = body
        self._mirrored = mirrored_fields(body)
        self.model = take_model(body)
        self.state = _take_state(body)
        self.input_items, self._paths = _take_input(body)

    def request(
        self,
        seal: ClientSeal,
        *,
        before: Sequence[bytes] = (),
        references: Mapping[str, bytes] | None = None,
        kept: Mapping[str, bytes] | None = None,
    ) -> Request:
        """The Request; to be called once. Raises InvalidRequest, naming the path.

        `before` are stored items that stand before the input, `references` those that it refers to, by id. `kept` are
        fields of the response that its keeper decides (`store`, `background`, `conversation`), raw JSON.
        """
        reader = InputReader(seal, references or {})
        _add_instructions(self._body, reader)
        reader.add_all(before, self.state.follows or "input")
        for raw, path in zip(self.input_items, self._paths, strict=True):
            reader.add(raw, path)
        reader.close()
        if not reader.messages and self._body.peek_raw("prompt") is None:
            raise InvalidRequest.at("input", "this field is required")
        return self._with_options(reader, kept or {})

    def _with_options(self, reader: InputReader, kept: Mapping[str, bytes]) -> Request:
        """The Request for these messages, with all that the body says besides."""
        body, mirrored = self._body, self._mirrored
        tools, tool_paths = _with_declared(parse_tools(body, RESPONSES) or (), reader.tools)
        hosted = any(tool.raw is not None for tool in tools or ())
        include, logprobs = _take_include(body)
        nested: dict[str, bytes] = {}
        other = [value for value in include if value not in (ENCRYPTED, LOGPROBS)]
        if other and hosted:  # without such tools it asks for nothing
            nested["include"] = orjson.dumps(other)
        reasoning = _take_reasoning(body, nested)
        own_format, verbosity = _take_text(body, nested)
        max_tool_calls = body.take("max_tool_calls", POSITIVE)
        values: dict[str, Any] = {
            "tool_choice": parse_tool_choice(body, tools, RESPONSES),
            "max_tokens": body.take("max_output_tokens", POSITIVE),
            "max_tool_calls": max_tool_calls if hosted else None,  # it counts the calls of hosted tools alone
            "truncation": _take_truncation(body),
        }
        body.take("metadata", METADATA)
        if body.take("enable_response_messages", BOOL):
            said = [found for message in plain_messages(reader.messages) for found in message_object(message)]
            mirrored[INPUT_MESSAGES] = orjson.dumps(said)
        groups = take_shared(body, RESPONSES_FIELDS)
        groups["reasoning"].update(reasoning)
        complete(mirrored)
        mirrored["text"] = mirrored_text(own_format, verbosity)
        request = build_request(
            body,
            RESPONSES,
            groups,
            model=self.model,
            messages=tuple(reader.messages),
            message_paths=tuple(reader.paths),
            tools=tools,
            tool_paths=tool_paths,
            logprobs=logprobs,
            output_format=only_format(body, own_format),
            verbosity=verbosity,
            encrypted_reasoning=ENCRYPTED in include,
            mirrored={**mirrored, **kept},
            **values,
        )
        nested.update({name: raw for name, raw in request.extras.items() if raw != b"null"})
        return request if nested == request.extras else replace(request, extras=nested)


def read_body(raw: bytes, *, max_depth: int) -> Asked:
    """Raises InvalidRequest, naming the path."""
    return Asked(parse_object(raw, max_depth=max_depth))


def refuse_state(state: State) -> None:
    """For a gateway that keeps no responses."""
    for name, value in (
        ("previous_response_id", state.previous_response_id),
        ("conversation", state.conversation),
        ("background", state.background or None),
    ):
        if value is not None:
            way_out = "wait for the answer" if name == "background" else "send the earlier items in input"
            raise UnsupportedParameter.at(name, f"this gateway keeps no responses; {way_out}")


def _take_state(body: JsonObject) -> State:
    found = body.take("conversation", _CONVERSATION)
    conversation = found if isinstance(found, str) else None
    if isinstance(found, dict):
        conversation = JsonObject(found, "conversation").require("id", NAME)
    state = State(
        store=body.take("store", BOOL),
        background=body.take("background", BOOL) or False,
        previous_response_id=body.take("previous_response_id", NAME),
        conversation=conversation,
    )
    _take_background_options(body, background=state.background)
    if state.previous_response_id is not None and state.conversation is not None:
        raise InvalidRequest.at("previous_response_id", "not allowed together with conversation")
    if state.background and state.store is False:
        raise InvalidRequest.at("background", "allowed only with store: true")
    return state


def _take_background_options(body: JsonObject, *, background: bool) -> None:
    """All of them are about OpenAI's own queues; who is in a hurry asks for nothing. Raises UnsupportedParameter."""
    options = body.take_object("background_options")
    if options is None:
        return
    if not background:
        raise InvalidRequest.at("background_options", "allowed only with background: true")
    window = options.take("completion_window", TEXT)
    if window not in (None, "soonest"):
        param = options.at("completion_window")
        raise UnsupportedParameter.at(param, "there is one queue here and no cheaper one; expected soonest")
    if options.take("continuation_id", TEXT) is not None:
        param = options.at("continuation_id")
        raise UnsupportedParameter.at(param, "background responses run here in the order they came")
    options.refuse_rest()


def _take_input(body: JsonObject) -> tuple[tuple[bytes, ...], tuple[str, ...]]:
    """The items, and where each stands."""
    text = body.take_if("input", TEXT)
    if text is not None:
        return (orjson.dumps({"type": "message", "role": "user", "content": text}),), ("input",)
    items = body.take("input", RAW_ITEMS) or ()
    return tuple(map(bytes, items)), tuple([f"input[{i}]" for i in range(len(items))])


def _add_instructions(body: JsonObject, reader: InputReader) -> None:
    instructions = body.take("instructions", TEXT)
    if instructions:
        reader.add_message(Message(role=SYSTEM, parts=(Text(text=instructions),)), "instructions")
    for row in body.take_objects(_MESSAGES) or ():
        reader.add_message(parse_message(row), row.path)


def _with_declared(
    tools: tuple[Tool, ...], declared: Sequence[tuple[Tool, str]]
) -> tuple[tuple[Tool, ...] | None, tuple[str, ...] | None]:
    """The body's tools and those that are declared in its input, each once, and where they stand."""
    if not declared:
        return tools or None, None
    found = {(tool.name, tool.raw): (tool, f"tools[{number}]") for number, tool in enumerate(tools)}
    for tool, path in declared:
        found.setdefault((tool.name, tool.raw), (tool, path))
    return tuple([tool for tool, _ in found.values()]), tuple([path for _, path in found.values()])


def _take_include(body: JsonObject) -> tuple[list[str], int | None]:
    """What is asked for beside the answer, and how many alternatives of each token (None: no logprobs)."""
    include = body.take("include", TEXTS) or []
    for i, value in enumerate(include):
        if value not in INCLUDE:
            raise InvalidRequest.at(f"include[{i}]", f"expected one of {', '.join(sorted(INCLUDE))}")
    top = body.take("top_logprobs", TOP_LOGPROBS)
    return include, (top or 0) if LOGPROBS in include else top or None


def _take_reasoning(body: JsonObject, nested: dict[str, bytes]) -> dict[str, Any]:
    reasoning = body.take_object("reasoning")
    if reasoning is None:
        return {}
    found: dict[str, Any] = {name: reasoning.take(name, SHORT_TEXT) for name in OF_REASONING}
    older = reasoning.take("generate_summary", SHORT_TEXT)
    found["summary"] = found["summary"] or older
    nested.update({f"reasoning.{name}": raw for name, raw in reasoning.rest().items()})
    return {name: value for name, value in found.items() if value is not None}


def _take_text(body: JsonObject, nested: dict[str, bytes]) -> tuple[OutputFormat | None, str | None]:
    text = body.take_object("text")
    if text is None:
        return None, None
    output_format = parse_response_format(text, "format")
    verbosity = text.take("verbosity", SHORT_TEXT)
    nested.update({f"text.{name}": raw for name, raw in text.rest().items()})
    return output_format, verbosity


def _take_truncation(body: JsonObject) -> str | None:
    """`disabled` is what every target does."""
    found = body.take("truncation", SHORT_TEXT)
    if found is None or found in _TRUNCATIONS:
        return found if found == "auto" else None
    raise InvalidRequest.at("truncation", f"expected {' or '.join(_TRUNCATIONS)}")
