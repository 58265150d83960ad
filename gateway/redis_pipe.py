"""Redis for many requests at once: what they send together goes there in one round trip, over one connection."""

import asyncio
from collections.abc import Sequence
from hashlib import sha1
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from gateway.waiting import awake_for

__all__ = ["RedisAway", "RedisPipe", "RedisScript"]

Argument = str | bytes | int | float


class RedisAway(Exception):
    """Redis could not be reached, did not answer in time, or refused. Its text names what happened."""


class _UnknownScript(RedisAway):
    """Redis has no such script, or has forgotten it."""


class RedisPipe:
    """Commands that come while others are under way wait for these; then `most` of them go together. `timeout_s` is the
    longest silence of Redis, connecting included. Raises ValueError on an address that is none."""

    def __init__(self, url: str, *, timeout_s: float, most: int = 256) -> None:
        # No limits of its own: they would count the time in which this process did not run.
        self._redis: Redis = Redis.from_url(url, socket_timeout=None, retry=Retry(NoBackoff(), 0))
        self._timeout_s = timeout_s
        self._most = most
        self._waiting: list[tuple[Sequence[Argument], asyncio.Future[Any]]] = []
        self._sending: asyncio.Task[None] | None = None

    def send(self, *command: Argument) -> "asyncio.Future[Any]":
        """What Redis answers, or RedisAway. It is sent whether or not anybody waits for it."""
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._waiting.append((command, answer))
        if self._sending is None or self._sending.done():
            self._sending = loop.create_task(self._send())
        return answer

    async def aclose(self) -> None:
        """Waits for the answers to what was sent."""
        if self._sending is not None:
            await self._sending
        await self._redis.aclose()

    async def _send(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            try:
                async with awake_for(self._timeout_s), self._redis.pipeline(transaction=False) as pipeline:
                    for command, _ in group:
                        pipeline.execute_command(*command)
                    answers = await pipeline.execute(raise_on_error=False)
            except (RedisError, OSError) as error:
                group, self._waiting = group + self._waiting, []
                answers = [error] * len(group)
            for (_, future), answer in zip(group, answers, strict=True):
                if future.done():
                    continue  # whoever asked has gone
                if isinstance(answer, Exception):
                    kind = _UnknownScript if isinstance(answer, NoScriptError) else RedisAway
                    future.set_exception(kind(type(answer).__name__))
                else:
                    future.set_result(answer)


class RedisScript:
    """A script that Redis keeps, and is told again where it does not."""

    def __init__(self, pipe: RedisPipe, text: str) -> None:
        self._pipe = pipe
        self._text = text
        self._sha = sha1(text.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """What the script gives. Raises RedisAway."""
        command = ("EVALSHA", self._sha, len(keys), *keys, *arguments)
        try:
            return await self._pipe.send(*command)
        except _UnknownScript:
            await self._pipe.send("SCRIPT LOAD", self._text)
            return await self._pipe.send(*command)
