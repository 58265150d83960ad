"""An HTTP service that judges texts. It gets, and answers, JSON:

    {"direction": "input", "model": "fast", "request_id": "req_1", "key": "team-a", "texts": ["..."]}
    {"action": "allow"} or {"action": "replace", "texts": ["..."]} or {"action": "refuse", "message": "..."}

An answer of the model comes in pieces of so many characters (the last one shorter), each judged before it is passed on.
A service that cannot be asked, or answers anything else, refuses everything: a guardrail that opens when it breaks is
none.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal

import aiohttp
import msgspec

from adapters.canonical.errors import ContentRefused, NotReady
from gateway.fetching.whole_body import whole_body
from gateway.guardrails.guardrail import Subject

__all__ = ["WebhookGuardrail"]

_PIECE = 400
_TOTAL_S = 5.0
_NO_HEADERS: Mapping[str, str] = {}
_MAX_ANSWER = 64 * 2**20


class _Verdict(msgspec.Struct):
    action: Literal["allow", "replace", "refuse"]
    texts: list[str] = []
    message: str = "a guardrail refused the text"


class WebhookGuardrail:
    def __init__(self, url: str, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        self._url = url
        self._headers = {**headers, "content-type": "application/json"}
        self._session: aiohttp.ClientSession | None = None

    async def check_input(self, texts: Sequence[str], subject: Subject) -> Sequence[str]:
        return await self.judge("input", texts, subject)

    def output_filter(self, subject: Subject) -> "_Filter":
        return _Filter(self, subject)

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def judge(self, direction: str, texts: Sequence[str], subject: Subject) -> Sequence[str]:
        """The texts as they may be passed on. Raises ContentRefused, and NotReady where nobody can tell."""
        body = {
            "direction": direction,
            "model": subject.model,
            "request_id": subject.request_id,
            "key": subject.key,
            "texts": texts,
        }
        try:
            async with asyncio.timeout(_TOTAL_S):
                verdict = await self._ask(msgspec.json.encode(body))
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.MsgspecError, ValueError) as error:
            raise NotReady("a guardrail cannot be asked", code="guardrail_unavailable", retry_after_s=1) from error
        if verdict.action == "refuse":
            raise ContentRefused(verdict.message[:500], code="guardrail")
        if verdict.action == "allow":
            return texts
        if len(verdict.texts) != len(texts):
            raise NotReady("a guardrail answered with another number of texts", code="guardrail_unavailable")
        return verdict.texts

    async def _ask(self, body: bytes) -> _Verdict:
        if self._session is None:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)
        async with self._session.post(self._url, data=body, headers=self._headers, allow_redirects=False) as answer:
            if answer.status != 200:
                raise ValueError(f"the webhook answered with {answer.status}")
            return msgspec.json.decode(await whole_body(answer.content.iter_any(), _MAX_ANSWER), type=_Verdict)


class _Filter:
    def __init__(self, webhook: WebhookGuardrail, subject: Subject) -> None:
        self._webhook = webhook
        self._subject = subject
        self._held = ""

    async def feed(self, text: str) -> str:
        self._held += text
        passed: list[str] = []
        while len(self._held) >= _PIECE:
            piece, self._held = self._held[:_PIECE], self._held[_PIECE:]
            passed += await self._webhook.judge("output", [piece], self._subject)
        return "".join(passed)

    async def finish(self) -> str:
        piece, self._held = self._held, ""
        return "".join(await self._webhook.judge("output", [piece], self._subject)) if piece else ""
