"""How long retrieving a response and listing its input takes, with many and with few responses in the database."""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import aiohttp
import orjson
from sqlalchemy import Connection, insert

from gateway.config import parse_config
from gateway.server.app import Surroundings, build_app
from gateway.storage.database import Database
from gateway.storage.place import FilePlace
from gateway.storage.schema import ITEMS, RESPONSES

ITEMS_EACH = 4
BATCH = 2000
TEXT = "word " * 200
CONFIG = """
version: 1
providers: {{none: {{type: openai-compatible, base_url: 'http://127.0.0.1:9/v1'}}}}
storage: {{url: 'sqlite:///{path}'}}
"""


def response_id(number: int) -> str:
    return f"resp_{number:024x}"


async def fill(path: Path, count: int) -> None:
    """Writes responses straight into the tables."""
    database = await Database.open(FilePlace(path))
    for first in range(0, count, BATCH):
        await database.write(partial(write_rows, range(first, min(first + BATCH, count))))
    await database.aclose()


def write_rows(numbers: range, connection: Connection) -> None:
    connection.execute(insert(RESPONSES), [row_of(number) for number in numbers])
    connection.execute(insert(ITEMS), [row for number in numbers for row in items_of(number)])


def row_of(number: int) -> dict[str, object]:
    body = orjson.dumps({"id": response_id(number), "object": "response", "output": [{"text": TEXT}]})
    now = int(time.time())
    return {
        "id": response_id(number),
        "owner": "",
        "created": now,
        "used": now * 1_000_000 + number,
        "bytes": len(body) + 4 * len(TEXT),
        "status": "completed",
        "background": False,
        "parent": None,
        "conversation": None,
        "worker": None,
        "lease_until": None,
        "body": body,
    }


def items_of(number: int) -> list[dict[str, object]]:
    ids = [f"msg_{number:024x}{place:04x}" for place in range(ITEMS_EACH)]
    return [
        {
            "response": response_id(number),
            "position": place,
            "item": item,
            "made": False,
            "raw": orjson.dumps({"id": item, "type": "message", "role": "user", "content": TEXT}),
        }
        for place, item in enumerate(ids)
    ]


async def timed(session: aiohttp.ClientSession, urls: Sequence[str]) -> list[float]:
    """Milliseconds of each request, in order of length."""
    found: list[float] = []
    for url in urls:
        began = time.perf_counter()
        async with session.get(url) as answer:
            await answer.read()
            assert answer.status == 200, await answer.text()
        found.append((time.perf_counter() - began) * 1000)
    return sorted(found)


async def measure(path: Path, count: int, requests: int) -> dict[str, list[float]]:
    config = parse_config(CONFIG.format(path=path), {}, provider_types=["openai-compatible"])
    app = build_app(config, around=Surroundings(log=None))
    await app.start()
    server = await asyncio.get_running_loop().create_server(app.connections, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/responses"
    chance = random.Random(1)
    asked = [f"{url}/{response_id(chance.randrange(count))}" for _ in range(requests)]
    try:
        async with aiohttp.ClientSession() as session:
            await timed(session, asked[:50])  # opens the database and its connections
            return {
                "retrieve": await timed(session, asked),
                "input items": await timed(session, [f"{one}/input_items?limit=3" for one in asked]),
            }
    finally:
        server.close()
        await app.drain(0)
        await app.aclose()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--responses", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=2000)
    arguments = parser.parse_args()
    medians: dict[str, list[float]] = {}
    print(f"{'':12} {'responses':>10} {'p50 ms':>8} {'p99 ms':>8}")
    for count in (max(arguments.responses // 100, 1), arguments.responses):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "gateway.db"
            await fill(path, count)
            for what, times in (await measure(path, count, arguments.requests)).items():
                p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
                print(f"{what:12} {count:>10} {p50:>8.2f} {p99:>8.2f}")
                medians.setdefault(what, []).append(p50)
    for what, (few, many) in medians.items():
        print(f"{what}: {many / few:.2f} times as long with 100 times as many")


if __name__ == "__main__":
    asyncio.run(main())
