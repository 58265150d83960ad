"""Models that call tools of the gateway, and what clients ask of them."""

from typing import Any

from adapters.canonical.events import (
    ChoiceFinished,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import Text, ToolResult
from adapters.canonical.request import Request
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from providers.base import Batch
from tests.adapters.openai.responses.event_order import checked
from tests.gateway.server.running import Running
from tests.gateway.server.stateful.responding import ONE_TRY, body

SMALL = {"type": "mcp", "server_label": "small", "require_approval": "never"}


def tools(url: str, more: str = "", rest: str = "") -> str:
    """The part of run.yaml that names the server `small`."""
    return f"tools: {{mcp: {{small: {{url: '{url}/mcp', timeout_s: 5{more}}}}}{rest}}}\n" + ONE_TRY


def calls(*made: tuple[str, str], usage: tuple[int, int] = (10, 5)) -> list[Batch]:
    """A turn that ends in these calls: names and arguments, which come in two pieces."""
    batches: list[Batch] = [[Started(id="up")]]
    for number, (name, arguments) in enumerate(made):
        batches.append([ToolCallStarted(0, number, f"call_{name}_{number}", name)])
        batches.append([ToolArgumentsDelta(0, number, piece) for piece in (arguments[:3], arguments[3:]) if piece])
        batches.append([ToolCallFinished(0, number)])
    tokens = Usage(prompt_tokens=usage[0], completion_tokens=usage[1], cached_tokens=2)
    return [*batches, [ChoiceFinished(0, StopReason.TOOL_CALLS), UsageReported(tokens)]]


def says(text: str, usage: tuple[int, int] = (20, 2)) -> list[Batch]:
    tokens = Usage(prompt_tokens=usage[0], completion_tokens=usage[1], cached_tokens=12)
    return [[Started()], [TextDelta(0, 0, text)], [ChoiceFinished(0, StopReason.STOP), UsageReported(tokens)]]


ADD = ("add", '{"a": 1, "b": 2}')


async def streamed(gateway: Running, **fields: Any) -> tuple[dict[str, Any], bytes]:
    """The final response of a checked stream, and the stream."""
    async with gateway.post(body(stream=True, **fields), "/v1/responses") as answer:
        assert answer.status == 200, await answer.text()
        frames = await answer.read()
    return checked(frames), frames


async def made(gateway: Running, **fields: Any) -> dict[str, Any]:
    async with gateway.post(body(**fields), "/v1/responses") as answer:
        assert answer.status == 200, await answer.text()
        found: dict[str, Any] = await answer.json()
        return found


async def shown(gateway: Running, response_id: str) -> dict[str, Any]:
    async with gateway.session.get(f"{gateway.url}/v1/responses/{response_id}") as answer:
        found: dict[str, Any] = await answer.json()
        return found


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


def without_ids(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != "id"}


def results(request: Request) -> list[tuple[str, bool | None]]:
    """What the model got back of its calls."""
    found = []
    for message in request.messages or ():
        for part in message.parts:
            if isinstance(part, ToolResult):
                (text,) = part.parts
                assert isinstance(text, Text)
                found.append((text.text, part.is_error))
    return found
