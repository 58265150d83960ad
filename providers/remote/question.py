"""A question of an upstream that is no generation (a list, a count, vectors): its words out, a decoded answer in.

Joins a dialect's errors with HTTP, once for all providers. Owns what makes an answer a good one (law 14); knows no wire
words, and never retries.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from adapters.canonical.errors import BadUpstreamResponse, GatewayError
from adapters.upstream import Upstream
from adapters.upstream_json import UNREADABLE
from providers.remote.answer import MAX_BODY_BYTES
from providers.remote.exchange import failure_of, is_readable
from providers.remote.failure import complete, wrong_content
from providers.remote.http import HttpClient

__all__ = ["Reply", "fetch_list", "post_question"]

_MAX_LIST_BYTES = 8 * 1024 * 1024
T = TypeVar("T")


class Reply(NamedTuple):
    """The body of a good answer, its headers, and the upstream's id of it."""

    body: bytes
    headers: Mapping[str, str]
    request_id: str | None = None

    def read(self, decode: Callable[[bytes], T], provider: str, expected: str) -> T:
        """What `decode` makes of the body. Raises BadUpstreamResponse, saying what was expected."""
        try:
            return decode(self.body)
        except UNREADABLE as error:
            raise BadUpstreamResponse(f"{provider}: the answer is no {expected}") from error


async def post_question(
    client: HttpClient,
    upstream: Upstream,
    path: str,
    body: bytes,
    *,
    request_id: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """The answer to a body. `upstream` reads a refusal. Raises GatewayError for anything but a good answer."""
    with await client.post(path, body, stream=False, request_id=request_id, headers=headers) as answer:
        if not 200 <= answer.status < 300:
            raise await failure_of(client, upstream, answer)
        if not is_readable(answer.content_type):
            raise wrong_content(client.provider, answer.status, answer.content_type, await answer.error_body())
        try:
            body = await answer.body(MAX_BODY_BYTES)
        except GatewayError as error:
            raise complete(error, answer.status, answer.headers) from error
        return Reply(body, answer.headers, answer.headers.get(client.request_id_header))


async def fetch_list(
    client: HttpClient,
    upstream: Upstream,
    path: str,
    decode: Callable[[bytes], T],
    headers: Mapping[str, str] | None = None,
) -> T:
    """A list of models, as `decode` reads it. Raises GatewayError where it can't be got."""
    with await client.get(path, headers) as answer:
        if answer.status != 200:
            raise await failure_of(client, upstream, answer)
        reply = Reply(await answer.body(_MAX_LIST_BYTES), answer.headers)
    return reply.read(decode, client.provider, "list of models")
