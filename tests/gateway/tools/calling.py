"""A gateway whose model calls two tools and then one that never answers, for tests that kill it.

python -m tests.gateway.tools.calling DATABASE        prints its port
"""

import asyncio
import json
import sys

from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import running
from tests.gateway.server.stateful.endless import STORAGE
from tests.gateway.tools.asking import ADD, calls
from tests.gateway.tools.serving import PLAIN


async def main(database: str) -> None:
    provider = ScriptedProvider("fake", calls(ADD, ("whoami", "{}")), calls(("hang", "{}")))
    extra = f"tools: {{mcp: {{small: {{command: {json.dumps(PLAIN)}}}}}}}\n" + STORAGE.format(database)
    async with running(provider, extra=extra) as gateway:
        print(gateway.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
