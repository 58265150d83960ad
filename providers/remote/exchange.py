"""One call of one upstream endpoint: a canonical request in, batches of events out.

Joins a dialect (`adapters.upstream.Upstream`) with HTTP, for every remote provider. One read of the socket is one
`feed` of the parser and one batch. Owns what only the two together show: that a 200 is what was asked for (law 14),
and whether a broken connection came after the end. Never retries.
"""

from collections.abc import AsyncGenerator, Mapping

from adapters.canonical.errors import GatewayError, UpstreamError
from adapters.canonical.events import Event, Started, TextDelta, is_output
from adapters.canonical.request import Request
from adapters.upstream import Upstream
from providers.base import Batch
from providers.remote.answer import MAX_ERROR_BYTES, Answer
from providers.remote.failure import complete, error_page, wrong_content
from providers.remote.http import HttpClient

__all__ = ["exchange", "failure_of", "is_readable"]

_AFTER_FINISH_S = 2.0
"""How long usage and the end of the body may take once every choice is finished."""
_STREAMS = ("text/event-stream", "application/x-ndjson", "application/vnd.amazon.eventstream")
_UNTYPED = ("", "text/plain", "application/octet-stream", "binary/octet-stream")
"""What servers send that do not know their own content: taken for what was asked."""
_MAX_LIMITS = 32
_MAX_LIMIT_CHARS = 128
_SSE_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")


async def exchange(
    client: HttpClient,
    upstream: Upstream,
    request: Request,
    *,
    path: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> AsyncGenerator[Batch, None]:
    """The events of the answer. `path` stands for the upstream's own where that depends on the request; `headers` go
    with this request alone. Closing the iterator closes the connection."""
    body = upstream.render_request(request)
    answer = await client.post(
        path or upstream.path, body, stream=request.stream, request_id=request.request_id, headers=headers
    )
    del body  # a stream may last for long, and need not hold it
    with answer:
        if not 200 <= answer.status < 300:
            raise await failure_of(client, upstream, answer)
        try:
            if not (request.stream and _may_be_stream(answer.content_type)):
                batch = await _whole(client.provider, upstream, request, answer)
                _note_head(batch, answer.headers, client.request_id_header)
                yield batch
                return
            parser = upstream.stream_parser(request)
            started = answering = False
            while True:
                try:
                    data = await answer.read()
                except UpstreamError:
                    if not parser.finished:
                        raise
                    break  # everything was said before the connection broke
                if not data:
                    break
                batch = parser.feed(data)
                if not batch:
                    continue
                if not answering and any(map(is_output, batch)):
                    answering = True
                    answer.started()
                if not started:
                    started = True
                    _note_head(batch, answer.headers, client.request_id_header)
                if type(batch[-1]) is not TextDelta and parser.finished:
                    answer.started(_AFTER_FINISH_S)
                yield batch
                if parser.failure is not None:
                    raise parser.failure
            batch = list(parser.close())
            if batch:
                yield batch
        except GatewayError as error:
            complete(error, answer.status, answer.headers)
            raise


async def _whole(provider: str, upstream: Upstream, request: Request, answer: Answer) -> list[Event]:
    """The events of a body that did not stream, or that is not what was asked for and still an answer."""
    if not is_readable(answer.content_type):
        raise wrong_content(provider, answer.status, answer.content_type, await answer.error_body())
    body = await answer.body()
    if body.lstrip().startswith(_SSE_STARTS):
        parser = upstream.stream_parser(request)
        events = parser.feed(body)
        if parser.failure is not None:
            raise parser.failure
        return [*events, *parser.close()]
    return upstream.parse_body(request, body)


async def failure_of(client: HttpClient, upstream: Upstream, answer: Answer) -> GatewayError:
    """The error that an answer with an error status (or a redirect) stands for."""
    body = await answer.error_body()
    if body.lstrip()[:1] in (b"{", b"[") and len(body) < MAX_ERROR_BYTES:
        error = upstream.parse_error(answer.status, body)
    else:
        error = error_page(client.provider, upstream.parse_error(answer.status, b"{}"), answer.status, body)
    if answer.status == 404:
        error.message += client.doubt
    return complete(error, answer.status, answer.headers)


def is_readable(content_type: str) -> bool:
    """Whether what has this content type (without its parameters) may be JSON, or a stream of it."""
    is_json = content_type in ("application/json", "text/json") or content_type.endswith("+json")
    return is_json or _may_be_stream(content_type)


def _may_be_stream(content_type: str) -> bool:
    return content_type in _STREAMS or content_type in _UNTYPED


def _limits_in(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What a head (names in lower case) says of rate limits, in each vendor's words."""
    found: list[tuple[str, str]] = []
    for name, value in headers.items():
        if "ratelimit" in name and len(value) <= _MAX_LIMIT_CHARS and value.isascii():
            found.append((name.removeprefix("x-"), value))
    return tuple(found[:_MAX_LIMITS])


def _note_head(batch: Batch, headers: Mapping[str, str], request_id_header: str) -> None:
    """Puts what the answer's head carried into its Started."""
    for place, event in enumerate(batch):
        if type(event) is Started:
            request_id = headers.get(request_id_header)
            known = None if request_id is None else request_id[:512]
            batch[place] = Started(event.id, event.created, event.model, known, _limits_in(headers))
            return
