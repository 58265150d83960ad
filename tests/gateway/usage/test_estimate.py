import pytest

from adapters.canonical.embedding import EmbeddingRequest
from adapters.canonical.messages import Image, MediaSource, Message, Text, ToolResult
from adapters.canonical.request import Request, Tool
from adapters.canonical.rerank import RerankRequest
from adapters.canonical.usage import Usage
from gateway.usage.estimate import DEFAULT_OUTPUT_TOKENS, output_tokens, prompt_tokens, with_prompt, with_uncounted


def asked(*parts: object, **fields: object) -> Request:
    message = Message(role="user", parts=parts)  # type: ignore[arg-type]
    return Request(model="m", dialect="chat", messages=(message,), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("request_", "tokens"),
    [
        (asked(Text(text="a" * 400)), 104),
        (asked(Text(text="é" * 400)), 204),
        (asked(ToolResult(call_id="1", parts=(Text(text="a" * 40),))), 18),
        (asked(Image(source=MediaSource(data="A" * 1_000_000))), 804),
        (asked(tools=(Tool(kind="function", name="f", parameters=b"x" * 400),)), 108),
        (Request(model="m", dialect="completions", prompts=("a" * 40, (1, 2, 3))), 13),
        (EmbeddingRequest(model="m", dialect="openai", inputs=("a" * 40, "b" * 8)), 12),
        (RerankRequest(model="m", dialect="x", query="a" * 8, documents=("b" * 8,)), 4),
        (object(), 0),
    ],
)
def test_a_prompt_is_guessed_from_the_length_of_what_is_in_it(request_: object, tokens: int) -> None:
    assert prompt_tokens(request_) == tokens


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({}, DEFAULT_OUTPUT_TOKENS),
        ({"max_tokens": 7}, 7),
        ({"max_tokens": 7, "n": 3}, 21),
        ({"max_tokens": 7, "best_of": 4}, 28),
    ],
)
def test_an_answer_is_guessed_from_what_the_request_allows(fields: dict[str, object], tokens: int) -> None:
    assert output_tokens(asked(Text(text="a"), **fields)) == tokens


def test_a_prompt_that_an_upstream_did_not_count_is_guessed_beside_what_it_did_count() -> None:
    request = asked(Text(text="a" * 400))
    assert with_prompt(Usage(completion_tokens=5), request) == Usage(
        prompt_tokens=104, completion_tokens=5, estimated=True
    )
    for told in (Usage(prompt_tokens=3), Usage(prompt_tokens=0, completion_tokens=5), Usage(completion_tokens=0)):
        assert with_prompt(told, request) is told


def test_what_was_written_after_the_last_report_is_guessed_beside_it() -> None:
    told = Usage(prompt_tokens=3, completion_tokens=1)
    assert with_uncounted(told, 401) == Usage(prompt_tokens=3, completion_tokens=102, estimated=True)
    assert with_uncounted(told, 0) is told
