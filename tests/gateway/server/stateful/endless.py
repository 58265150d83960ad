"""A gateway in a process of its own, to be killed: its answers are short for the input `short` and endless for others.

    python -m tests.gateway.server.stateful.endless URL_OF_THE_DATABASE

prints its port, then runs until it is ended.
"""

import asyncio
import sys
from collections.abc import Iterator

from adapters.canonical.events import ChoiceFinished
from adapters.canonical.request import Request
from adapters.canonical.stop_reason import StopReason
from providers.testing.scripted import ScriptedProvider, Step
from tests.gateway.server.running import HELLO, running, text

__all__ = ["STORAGE"]

STORAGE = "storage: {{url: '{}'}}\n"


def script(request: Request) -> Iterator[Step]:
    if "short" in str(request.messages):
        yield from HELLO
        return
    turn = asyncio.Event()
    turn.set()
    number = 0
    while True:
        yield text(f"{number} ")
        yield turn  # lets the others run
        number += 1
        if number == 1_000_000:
            yield [ChoiceFinished(0, StopReason.STOP)]


async def serve(url: str) -> None:
    async with running(ScriptedProvider("fake", script), extra=STORAGE.format(url)) as gateway:
        print(gateway.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
