"""Calls that pass through to a provider of the same dialect: audio, images, moderations, files and batches.

Which provider gets one is decided by its model, as for generation; a call without a model goes to the one provider that
has the endpoint, or to the one that the header x-gateway-provider names. Bodies are read no further than to their model
and stream both ways. Errors of the upstream are the gateway's own errors.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlencode

import msgspec
import orjson
from msgspec.structs import replace

from adapters.answer_addresses import check_addresses
from adapters.canonical.errors import GatewayError, InvalidRequest, PermissionDenied, UpstreamTimeout, WrongMediaType
from adapters.front import Front
from adapters.json_fields import decode_at, parse_object
from gateway.guardrails.chain import FilterChain
from gateway.guardrails.forwarded_answer import filtered_json, filtered_transcript, whole
from gateway.guardrails.guardrail import Subject
from gateway.guardrails.guardrails import Guardrails
from gateway.http.answer import Reply
from gateway.http.stream import Stream
from gateway.routing.progress import Progress
from gateway.routing.route import Target
from gateway.routing.router import Router
from gateway.server.answer_headers import forwarded_headers
from gateway.server.body import BodyReader
from gateway.server.exchange import Exchange
from gateway.server.forwarding.upload import Body, Upload, WholeBody
from gateway.server.generation import admit
from gateway.server.reservation import reserve
from gateway.server.routes import Route
from gateway.usage.units import Units, told_units, told_usage
from providers.abilities import ForwardAnswer, ForwardCall, Forwarder, lacks
from providers.base import Provider

__all__ = ["PROVIDER_HEADER", "Forwarding", "forwarded_routes"]

PROVIDER_HEADER = "x-gateway-provider"
_TRANSCRIPTS = ("/audio/transcriptions", "/audio/translations")
_IMAGES = ("/images/generations", "/images/edits", "/images/variations")
_SPEECH = "/audio/speech"
_MODEL_PATHS = (_SPEECH, *_TRANSCRIPTS, *_IMAGES)
_MODERATIONS = "/moderations"
_STORES = ("/files", "/batches")
"""What an upstream keeps for its account."""
_REQUEST_HEADERS = ("content-type", "accept")
_ANSWER_HEADERS = ("content-type", "content-disposition", "content-length")
_QUERY = frozenset(("after", "limit", "order", "purpose"))
_REST = re.compile(r"[A-Za-z0-9][\w-]*(/(content|cancel))?", re.ASCII)
_VERSION = "/v1"
_EVENTS = "text/event-stream"
_VALUE = msgspec.json.Decoder(object)
_MAX_IMAGES = 1000
_SOUND_BYTES = 16_000
"""A second of a file of sound, about: 128 kbit/s. Only where the answer does not say how long it was."""


@dataclass(frozen=True, slots=True)
class _Named:
    model: str


class Forwarding:
    """`providers` stand in the order of run.yaml. `front` None: errors are OpenAI's.

    `total_s` bounds the way to an answer's head, all tries together, and then the answer.
    """

    front: Front | None = None

    def __init__(
        self,
        router: Router,
        providers: Mapping[str, Provider],
        bodies: BodyReader,
        *,
        max_depth: int,
        total_s: float,
    ) -> None:
        self._router = router
        self._providers = providers
        self._bodies = bodies
        self._max_depth = max_depth
        self._total_s = total_s

    async def serve(self, exchange: Exchange) -> Reply:
        """Any of the paths of `forwarded_routes`."""
        request = exchange.request
        path, endpoint, is_inside = _upstream_path(exchange)
        exchange.streams = False
        if request.method != "POST" or is_inside:
            return await self._pass_on(exchange, path, None, None)
        guardrails = self._router.guardrails if endpoint not in _STORES else None
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "multipart/form-data":
            has_texts = guardrails is not None and bool(guardrails.inputs)
            with Upload(request, self._bodies, has_texts=has_texts) as upload:
                model = await upload.model() if endpoint not in _STORES else None
                units = _expected_units(endpoint, {}, request.content_length)
                return await self._pass_on(exchange, path, _required(model, endpoint), upload, guardrails, units)
        if kind != "application/json":
            raise WrongMediaType("expected the content type application/json or multipart/form-data")
        body = await exchange.read(self._bodies)
        model, whole, fields = _json_body(body, self._max_depth)
        if endpoint in _STORES:
            model, whole = None, WholeBody(body)
        units = _expected_units(endpoint, fields, len(body))
        return await self._pass_on(exchange, path, _required(model, endpoint), whole, guardrails, units)

    async def _pass_on(
        self,
        exchange: Exchange,
        path: str,
        model: str | None,
        body: Body | None,
        guardrails: Guardrails | None = None,
        units: Units | None = None,
    ) -> Reply:
        """`guardrails` look at its texts; None: there are none, or it is no matter of theirs. `units` are what it is
        expected to use."""
        subject = Subject(model or "", exchange.request_id, exchange.key.id if exchange.key else None)

        async def call(target: Target) -> ForwardAnswer:
            return await self._call(exchange, target, path, body)

        def may_repeat() -> bool:
            return body is None or body.repeatable

        if model is None:
            _check_unlimited(exchange)
            await reserve(exchange, None, None, self._router.names)
            target = self._only_target(exchange, path)
            await _check(body, guardrails, subject)
            answer = await self._router.ask_targets([target], exchange.begin_routing(), call, may_repeat=may_repeat)
        else:
            exchange.model = model
            await admit(exchange, _Named(model), self._router.names)
            await reserve(exchange, model, units, self._router.names)
            await _check(body, guardrails, subject)
            answer = await self._router.ask(model, exchange.begin_routing(), call, may_repeat=may_repeat)
        exchange.upstream_request_id = answer.request_id
        new_filters = None
        if guardrails is not None and guardrails.outputs:
            new_filters = partial(guardrails.output_filters, subject)
        return await self._send(exchange, _checked(answer, path.partition("?")[0], new_filters))

    async def _send(self, exchange: Exchange, answer: ForwardAnswer) -> Reply:
        async with aclosing(answer.body) as pieces:
            first = await anext(pieces, b"")  # what breaks before it is an error with its own status
            exchange.status = answer.status
            stream = Stream(exchange.request, status=answer.status, headers=_answer_headers(exchange, answer))
            try:
                async with asyncio.timeout(self._total_s):
                    stream.write(first)
                    async for piece in pieces:
                        await stream.drained()
                        stream.write(piece)
            except (GatewayError, TimeoutError) as error:
                # The head is out: only a connection that breaks tells the client that this is not all.
                exchange.error = (
                    error if isinstance(error, GatewayError) else UpstreamTimeout("the answer was not complete in time")
                )
                exchange.request.wire.abort()
                return stream
        stream.end()
        return stream

    async def _call(self, exchange: Exchange, target: Target, path: str, body: Body | None) -> ForwardAnswer:
        provider = target.provider
        if not isinstance(provider, Forwarder) or not provider.forwards(path.partition("?")[0]):
            raise lacks(exchange.model or target.label, f"has no {path.partition('?')[0]}")
        try:
            answer = await provider.forward(
                ForwardCall(
                    method=exchange.request.method,
                    path=path,
                    headers=forwarded_headers(exchange.request, _REQUEST_HEADERS),
                    body=None if body is None else body.pieces(target.model),
                    length=None if body is None else body.length(target.model),
                    request_id=exchange.request_id,
                )
            )
        except GatewayError:
            if isinstance(body, Upload) and body.failure is not None:
                raise body.failure from None  # the client's body broke, and with it the call
            raise
        is_told = path.partition("?")[0] in (*_TRANSCRIPTS, *_IMAGES) and _is_json(answer)
        return await _measured(answer, exchange.progress) if exchange.charge is not None and is_told else answer

    def _only_target(self, exchange: Exchange, path: str) -> Target:
        """For a call that names no model."""
        endpoint = path.partition("?")[0]
        able = {
            name: provider
            for name, provider in self._providers.items()
            if isinstance(provider, Forwarder) and provider.forwards(endpoint)
        }
        wanted = exchange.request.headers.get(PROVIDER_HEADER)
        if wanted is None and len(able) == 1:
            return Target(next(iter(able.values())), "")
        if wanted in able:
            return Target(able[wanted], "")
        if not able:
            raise InvalidRequest(f"no provider of this gateway has {_VERSION}{endpoint}")
        raise InvalidRequest.at(
            PROVIDER_HEADER, f"this call names no model, so name the provider; with {endpoint}: {', '.join(able)}"
        )


def forwarded_routes(forwarding: Forwarding) -> Mapping[str, Route]:
    """The paths and methods that pass through."""
    post, get = {"POST": forwarding.serve}, {"GET": forwarding.serve}
    routes = {f"{_VERSION}{path}": Route(post) for path in (*_MODEL_PATHS, _MODERATIONS)}
    routes |= {f"{_VERSION}{path}": Route({**post, **get}) for path in _STORES}
    return routes | {
        f"{_VERSION}/files/*": Route({**get, "DELETE": forwarding.serve}),
        f"{_VERSION}/batches/*": Route({**post, **get}),
    }


def _upstream_path(exchange: Exchange) -> tuple[str, str, bool]:
    """The path (with its query) below the version, the endpoint that it belongs to, and whether it lies below that.

    Raises InvalidRequest.
    """
    path, _, _ = exchange.request.target.partition("?")
    path = path.removeprefix(_VERSION)
    query = [(name, value) for name, value in exchange.request.query.items() if name in _QUERY]
    endpoint = next((store for store in _STORES if path.startswith(f"{store}/")), path)
    is_inside = path != endpoint
    if is_inside and not _REST.fullmatch(path[len(endpoint) + 1 :]):
        raise InvalidRequest(f"{endpoint}: expected an id of letters, digits, '-' and '_'", code="invalid_id")
    return (f"{path}?{urlencode(query)}" if query else path), endpoint, is_inside


def _json_body(body: bytes, max_depth: int) -> tuple[str | None, WholeBody, Mapping[str, bytes]]:
    """The model that a JSON body names, the body around the name, and its other fields. Raises InvalidRequest."""
    fields = parse_object(body, max_depth=max_depth).rest()
    raw = fields.pop("model", b"null")
    model = decode_at(raw, _VALUE, "model")
    if model is None:
        return None, WholeBody(body), fields
    if not isinstance(model, str):
        raise InvalidRequest.at("model", "expected a string")
    rest = b"".join([b"," + orjson.dumps(name) + b":" + value for name, value in fields.items()])
    return model, WholeBody(b'{"model":', rest + b"}"), fields


def _expected_units(endpoint: str, fields: Mapping[str, bytes], body_bytes: int | None) -> Units | None:
    """What a call is paid by beside tokens, as far as the request tells."""
    if endpoint in _IMAGES:
        count = decode_at(fields.get("n", b"1"), _VALUE, "n")
        return Units(images=count if isinstance(count, int) and 0 < count <= _MAX_IMAGES else 1)
    if endpoint in _TRANSCRIPTS:
        return Units(seconds=(body_bytes or _SOUND_BYTES * 60) / _SOUND_BYTES)
    if endpoint == _SPEECH:
        text = decode_at(fields.get("input", b'""'), _VALUE, "input")
        return Units(characters=len(text) if isinstance(text, str) else 0)
    return None


def _is_json(answer: ForwardAnswer) -> bool:
    return answer.headers.get("content-type", "").startswith("application/json")


async def _measured(answer: ForwardAnswer, progress: Progress | None) -> ForwardAnswer:
    """The answer, read to its end, with what it tells of its use in `progress`."""
    async with aclosing(answer.body) as body:
        raw = await whole(body)
    if progress is not None:
        progress.counted, progress.units = told_usage(raw), told_units(raw)
    return replace(answer, body=_one(raw))


async def _one(piece: bytes) -> AsyncGenerator[bytes, None]:
    yield piece


def _required(model: str | None, endpoint: str) -> str | None:
    """Raises InvalidRequest where an endpoint of a model is asked without one."""
    if not model and endpoint in _MODEL_PATHS:
        raise InvalidRequest.at("model", "this field is required")
    return model or None


async def _check(body: Body | None, guardrails: Guardrails | None, subject: Subject) -> None:
    """Raises ContentRefused."""
    if body is not None and guardrails is not None and guardrails.inputs:
        await body.check(partial(guardrails.checked_texts, subject=subject))


def _checked(answer: ForwardAnswer, endpoint: str, new_filters: Callable[[], FilterChain] | None) -> ForwardAnswer:
    """The answer, with its texts as guardrails leave them; None: there are none. Raises while it is read."""
    content_type = answer.headers.get("content-type", "")
    if endpoint in _TRANSCRIPTS and new_filters is not None:
        told = filtered_transcript(answer.body, content_type, new_filters)
    elif endpoint in _IMAGES and not content_type.startswith(_EVENTS):
        told = _images(answer.body, new_filters)
    else:
        return answer
    headers = {name.lower(): value for name, value in answer.headers.items()}
    if new_filters is not None:  # what is changed has another length
        headers.pop("content-length", None)
    return replace(answer, headers=headers, body=_closing(told, answer.body))


async def _images(
    body: AsyncGenerator[bytes, None], new_filters: Callable[[], FilterChain] | None
) -> AsyncGenerator[bytes, None]:
    """Raises BadUpstreamResponse for an image at an address that is none of the web."""
    raw = await whole(body)
    check_addresses(raw)
    yield raw if new_filters is None else await filtered_json(raw, new_filters)


async def _closing(
    pieces: AsyncGenerator[bytes, None], source: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """The pieces, and what they are made of closed with them."""
    async with aclosing(source), aclosing(pieces):
        async for piece in pieces:
            yield piece


def _check_unlimited(exchange: Exchange) -> None:
    """What an upstream keeps is its account's, so all keys see the same: only those for every model may use it."""
    key = exchange.key
    if key is not None and not key.may_use_all:
        raise PermissionDenied("this key is limited to some models, and this call names none", code="model_not_allowed")


def _answer_headers(exchange: Exchange, answer: ForwardAnswer) -> dict[str, str]:
    headers = exchange.headers()
    del headers["Content-Type"]
    for name in _ANSWER_HEADERS:
        value = answer.headers.get(name)
        if name == "content-length" and "content-encoding" in answer.headers:
            continue  # it was unpacked on the way, though nobody asked for it packed
        if value is not None and value.isascii() and value.isprintable():
            headers[name.title()] = value
    if headers.get("Content-Type", "").startswith(_EVENTS):
        headers |= {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return headers
