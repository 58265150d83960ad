from collections.abc import Iterator

import pytest

from tests.gateway.tools.serving import served


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """The small MCP server over HTTP."""
    with served() as found:
        yield found
