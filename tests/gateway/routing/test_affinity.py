"""What makes requests belong together: the session, the client's cache key, or how the prompt begins."""

import pytest

from adapters.canonical.messages import Image, MediaSource, Message, Text, ToolResult
from adapters.canonical.request import Prompt, Request
from gateway.routing.affinity import affinity_of, session_of
from gateway.routing.progress import Progress


def message(role: str, text: str) -> Message:
    return Message(role=role, parts=(Text(text=text),))


def chat(*messages: Message, **fields: str) -> Request:
    return Request(model="m", dialect="chat", messages=messages, **fields)  # type: ignore[arg-type]


def affinity(request: Request | None, progress: Progress | None = None) -> str | None:
    progress = progress or Progress()
    progress.session_id = session_of(progress, request)
    return affinity_of(progress, request)


def test_the_session_of_the_body_counts_before_that_of_the_header_and_before_the_cache_key() -> None:
    header = Progress(headers={"x-gateway-session": "h"})
    assert affinity(chat(message("user", "x"), session_id="b", prompt_cache_key="k"), header) == "session b"
    assert affinity(chat(message("user", "x"), prompt_cache_key="k"), header) == "session h"
    assert affinity(chat(message("user", "x"), prompt_cache_key="k")) == "key k"


def test_a_prompt_belongs_to_what_begins_alike() -> None:
    begun = (message("system", "be good"), message("user", "why?"))
    grown = (*begun, message("assistant", "so"), message("user", "more"))
    assert affinity(chat(*begun)) == affinity(chat(*grown))
    assert affinity(chat(*begun)) != affinity(chat(begun[0], message("user", "how?")))
    assert affinity(chat(*begun)) != affinity(chat(message("system", "be bad"), begun[1]))


def test_results_of_tools_do_not_end_the_beginning_and_a_picture_counts_by_its_kind() -> None:
    result = Message(role="user", parts=(ToolResult(call_id="1"),))
    assert affinity(chat(result, message("user", "a"))) != affinity(chat(result, message("user", "b")))
    first, second = (Message(role="user", parts=(Image(source=MediaSource(url=url)),)) for url in ("u", "v"))
    assert affinity(chat(first)) == affinity(chat(second))


@pytest.mark.parametrize(
    ("prompt", "longer", "other"),
    [("a" * 4096, "a" * 5000, "b" * 4096), (tuple(range(512)), tuple(range(600)), tuple(range(1, 513)))],
    ids=["text", "tokens"],
)
def test_plain_prompts_belong_together_by_their_first_part(prompt: Prompt, longer: Prompt, other: Prompt) -> None:
    one, two, three = (
        affinity(Request(model="m", dialect="completions", prompts=(each,))) for each in (prompt, longer, other)
    )
    assert one == two
    assert one != three


def test_what_has_no_prompt_belongs_together_by_session_alone() -> None:
    assert affinity(None) is None
    assert affinity(None, Progress(headers={"x-gateway-session": "h"})) == "session h"
