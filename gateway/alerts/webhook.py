"""Posts alerts to one address, one after the other, off the requests' way.

    {"event": "budget_used", "id": "...", "text": "...", "at": 1793700000, ...}

Chats read `text` (Slack, Mattermost). Each alert is a line in the log as well, whether or not it was taken.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import aiohttp
import orjson

from gateway.alerts.alert import Alert
from gateway.waiting import set_within

__all__ = ["MAX_WAITING", "AlertWebhook"]

MAX_WAITING: Final = 1000
"""Alerts that wait to be taken; more are in the log alone."""
_POST_S: Final = 10.0
_WAITS_S: Final = (1.0, 10.0)
"""Before another try."""


class AlertWebhook:
    """`log` takes an event and its fields, `now` gives Unix seconds. `waits_s`: before each further try."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        log: Callable[[str, dict[str, object]], None],
        *,
        now: Callable[[], float],
        waits_s: tuple[float, ...] = _WAITS_S,
    ) -> None:
        self._url = url
        self._headers = {**headers, "content-type": "application/json"}
        self._log = log
        self._now = now
        self._waits_s = waits_s
        self._waiting: deque[tuple[Alert, bytes]] = deque()
        self.posting: asyncio.Task[None] | None = None
        """What posts them; None: none waits."""
        self._closing = asyncio.Event()

    def tell(self, alert: Alert) -> None:
        """See `Tell`."""
        self._log("alert", {"alert": alert.event, **alert.fields})
        if len(self._waiting) >= MAX_WAITING:
            self._log("alert_not_sent", {"id": alert.id, "reason": "too many wait"})
            return
        body = {"event": alert.event, "id": alert.id, "text": alert.text, "at": int(self._now()), **alert.fields}
        self._waiting.append((alert, orjson.dumps(body)))
        if self.posting is None:
            self.posting = asyncio.get_running_loop().create_task(self._post_all())

    async def aclose(self) -> None:
        """Gives each alert that waits one more try."""
        self._closing.set()
        if self.posting is not None:
            await self.posting

    async def _post_all(self) -> None:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=False) as session:
            while self._waiting:
                alert, body = self._waiting[0]
                why = await self._post(session, body)
                if why is not None:
                    self._log("alert_not_sent", {"id": alert.id, "reason": why})
                self._waiting.popleft()
        self.posting = None

    async def _post(self, session: aiohttp.ClientSession, body: bytes) -> str | None:
        """Why nobody took it; None: it was taken."""
        why = await self._try(session, body)
        for wait_s in self._waits_s:
            if why is None or self._closing.is_set():
                break
            await set_within(self._closing, wait_s)
            why = await self._try(session, body)
        return why

    async def _try(self, session: aiohttp.ClientSession, body: bytes) -> str | None:
        try:
            async with (
                asyncio.timeout(_POST_S),
                session.post(self._url, data=body, headers=self._headers, allow_redirects=False) as answer,
            ):
                return None if answer.status < 300 else f"status {answer.status}"
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return type(error).__name__
