"""What a client is told of an upstream's failure."""

from collections.abc import Callable

import orjson
import pytest

from adapters.anthropic.errors import parse_error as of_anthropic
from adapters.bedrock.errors import parse_error as of_bedrock
from adapters.canonical.errors import (
    ContextOverflow,
    GatewayError,
    InvalidRequest,
    Unprocessable,
    UpstreamAuth,
    UpstreamInternal,
)
from adapters.gemini.errors import parse_error as of_gemini
from adapters.ollama.errors import parse_error as of_ollama
from adapters.openai.errors import parse_error as of_openai
from adapters.upstream_errors import error_class_of, upstream_failure


@pytest.mark.parametrize(
    "status", [401, 402, 403, 404, 405, 407, 408, 409, 410, 421, 424, 425, 429, 499, 500, 503, 529]
)
def test_another_target_is_asked_after_a_status_that_is_not_about_the_requests_content(status: int) -> None:
    assert error_class_of(status).fails_over


@pytest.mark.parametrize("status", [400, 413, 415, 418, 422, 431])
def test_a_status_about_the_requests_content_is_told_at_once(status: int) -> None:
    assert not error_class_of(status).fails_over


@pytest.mark.parametrize("message", [None, "", 7, {"a": 1}])
def test_the_status_stands_for_a_message_that_is_none(message: object) -> None:
    assert upstream_failure(UpstreamInternal, message, status=500).message == "the upstream answered 500"
    assert upstream_failure(UpstreamInternal, message, status=None).message == "the upstream answered with an error"


def test_a_message_is_told_up_to_a_bound() -> None:
    assert upstream_failure(UpstreamInternal, "x" * 100_000, status=500).message == "x" * 2000


def test_what_concerns_the_gateways_account_is_not_told() -> None:
    assert "sk-1" not in upstream_failure(UpstreamAuth, "bad key sk-1", status=401).message


def anthropics(message: str) -> bytes:
    return orjson.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": message}})


def bedrocks(message: str) -> bytes:
    return orjson.dumps({"message": message})


def googles(message: str) -> bytes:
    return orjson.dumps({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}})


def ollamas(message: str) -> bytes:
    return orjson.dumps({"error": message})


def openais(message: str) -> bytes:
    return orjson.dumps({"error": {"message": message, "type": "BadRequestError", "code": "invalid_request_error"}})


@pytest.mark.parametrize(
    ("parse", "body", "message"),
    [
        (of_anthropic, anthropics, "prompt is too long: 200251 tokens > 200000 maximum"),
        (of_anthropic, anthropics, "Prompt is too long"),
        (of_anthropic, anthropics, "input length and `max_tokens` exceed context limit: 178902 + 32000 > 200000"),
        (of_bedrock, bedrocks, "Input is too long for requested model."),
        (of_bedrock, bedrocks, "The model returned the following errors: prompt is too long: 3 tokens > 2 maximum"),
        (of_gemini, googles, "The input token count (9) exceeds the maximum number of tokens allowed (8)."),
        (of_gemini, googles, "The input token count exceeds the maximum number of tokens allowed 1048576."),
        (
            of_gemini,
            googles,
            "Unable to submit request because the input token count is 36 but model only supports up to 10. Reduce it.",
        ),
        (of_openai, openais, "This model's maximum context length is 2048 tokens. However, you requested 2053 tokens."),
        (of_openai, openais, "This endpoint's maximum context length is 131072 tokens. However, you requested about 3"),
        (
            of_openai,
            openais,
            "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 65536 "
            "tokens and your request has 57879 input tokens (8192 > 65536 - 57879).",
        ),
        (of_openai, ollamas, "This model's maximum prompt length is 500000 but the request contains 637815 tokens."),
        (of_openai, openais, "The input (516368 tokens) is longer than the model's context length (262144 tokens)."),
        (
            of_openai,
            bedrocks,
            "Prompt contains 7 tokens and 0 draft tokens, too large for model with 3 maximum context",
        ),
        (of_openai, openais, "Invalid request: Your request exceeded model token limit: 8192"),
        (of_ollama, ollamas, "the input length exceeds the context length"),
        (of_ollama, ollamas, "prompt too long; exceeded max context length by 4096 tokens"),
    ],
)
def test_a_prompt_that_does_not_fit_is_told_as_such_whatever_the_vendors_words(
    parse: Callable[[int, bytes], GatewayError], body: Callable[[str], bytes], message: str
) -> None:
    error = parse(400, body(message))
    assert (type(error), error.code) == (ContextOverflow, "context_length_exceeded")


@pytest.mark.parametrize(
    "message",
    [
        "messages: the words 'prompt is too long' are yours",
        "prompt is too long to be cached",
        "tools.0.name: This model's maximum context length is 8",
        "max_tokens: 90000 > 64000, which is the maximum allowed number of output tokens",
    ],
)
def test_words_of_a_client_that_come_back_are_no_overflow(message: str) -> None:
    assert type(of_anthropic(400, anthropics(message))) is InvalidRequest


def test_a_word_that_says_more_than_a_sentence_stays() -> None:
    message = "prompt is too long: 3 tokens > 2 maximum"
    assert type(upstream_failure(Unprocessable, message, status=422)) is Unprocessable
    assert type(upstream_failure(UpstreamAuth, message, status=401)) is UpstreamAuth
