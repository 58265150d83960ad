"""A script of Redis that many requests call at once: what is called together goes there in one round trip."""

import asyncio
from collections.abc import Sequence
from hashlib import sha1
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from gateway.waiting import awake_for

__all__ = ["RedisAway", "RedisScript"]

_MOST = 256
"""Calls of one round trip."""

Argument = str | int | float


class RedisAway(Exception):
    """Redis could not be reached, did not answer in time, or refused. Its text names what happened."""


class RedisScript:
    """Calls that come while others are under way wait for these, and then go together. `timeout_s` is the longest
    silence of Redis."""

    def __init__(self, redis: Redis, text: str, *, timeout_s: float) -> None:
        self._redis = redis
        self._text = text
        self._sha = sha1(text.encode(), usedforsecurity=False).hexdigest()
        self._timeout_s = timeout_s
        self._waiting: list[tuple[Sequence[str], Sequence[Argument], asyncio.Future[Any]]] = []
        self._sending: asyncio.Task[None] | None = None

    def __call__(self, keys: Sequence[str], arguments: Sequence[Argument]) -> "asyncio.Future[Any]":
        """What the script gives, or RedisAway. The call is made whether or not anybody waits for it."""
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._waiting.append((keys, arguments, answer))
        if self._sending is None or self._sending.done():
            self._sending = loop.create_task(self._send())
        return answer

    async def aclose(self) -> None:
        """Waits for what was called."""
        if self._sending is not None:
            await self._sending

    async def _send(self) -> None:
        while self._waiting:
            calls, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
            try:
                async with awake_for(self._timeout_s):
                    answers = await self._round_trip([(keys, arguments) for keys, arguments, _ in calls])
            except (RedisError, OSError, TimeoutError) as error:
                calls, self._waiting = calls + self._waiting, []
                answers = [error] * len(calls)
            for (_, _, future), answer in zip(calls, answers, strict=True):
                if isinstance(answer, Exception):
                    future.set_exception(RedisAway(type(answer).__name__))
                else:
                    future.set_result(answer)

    async def _round_trip(self, calls: Sequence[tuple[Sequence[str], Sequence[Argument]]]) -> list[Any]:
        answers = await self._evaluate(calls)
        unknown = [place for place, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:
            await self._redis.script_load(self._text)
            again = await self._evaluate([calls[place] for place in unknown])
            for place, answer in zip(unknown, again, strict=True):
                answers[place] = answer
        return answers

    async def _evaluate(self, calls: Sequence[tuple[Sequence[str], Sequence[Argument]]]) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipeline:
            for keys, arguments in calls:
                pipeline.evalsha(self._sha, len(keys), *keys, *arguments)
            return await pipeline.execute(raise_on_error=False)
