"""The words of an error, in the forms that hosts in front of a dialect's servers have."""

import json
from collections.abc import Callable

import pytest

from adapters.anthropic.errors import parse_error as anthropic
from adapters.bedrock.errors import parse_error as bedrock
from adapters.canonical.errors import GatewayError, InvalidRequest
from adapters.cohere.upstream import CohereUpstream
from adapters.error_words import told_in, words_of
from adapters.gemini.errors import parse_error as gemini
from adapters.ollama.errors import parse_error as ollama
from adapters.openai.errors import parse_error as openai

FORMS = [
    ({"message": "m"}, "m"),
    ({"Message": "m"}, "m"),
    ({"detail": "m"}, "m"),
    ({"title": "Bad", "status": 400, "detail": "m"}, "m"),
    ({"error": "m"}, "m"),
    ({"error": ["m", "n"]}, "m; n"),
    ({"error": {"message": "m", "code": "c"}}, "m"),
    ({"error": {"detail": "m"}}, "m"),
    ({"error": None, "message": "m"}, "m"),
    ({"error_code": 336003, "error_msg": "m"}, "m"),
    ({"error_type": "t", "error_message": "m"}, "m"),
    ({"code": 10012, "msg": "m"}, "m"),
    ({"errors": [{"code": 7000, "message": "m"}]}, "m"),
    ({"errors": ["m"]}, "m"),
    ({"fault": {"faultstring": "m", "detail": {"errorcode": "x"}}}, "m"),
    ({"detail": [{"loc": ["body", "messages", 0], "msg": "m"}, {"msg": "n"}, 7]}, "messages.0: m; n"),
    ([{"error": {"message": "m"}}], "m"),
]


@pytest.mark.parametrize(("body", "words"), FORMS)
def test_the_words_are_found_wherever_they_stand(body: object, words: str) -> None:
    assert words_of(body) == words


@pytest.mark.parametrize("parse", [anthropic, bedrock, gemini, ollama, openai, CohereUpstream("p").parse_error])
@pytest.mark.parametrize("body", [body for body, words in FORMS if words == "m"])
def test_a_client_of_any_dialects_host_reads_them(parse: Callable[[int, bytes], GatewayError], body: object) -> None:
    error = parse(400, json.dumps(body).encode())
    assert isinstance(error, InvalidRequest)
    assert error.message == "m"


@pytest.mark.parametrize("body", [{}, [], None, 7, "", {"error": {}}, {"error": 7}, [[]], {"loc": ["a"]}, [{"loc": 7}]])
def test_there_may_be_none(body: object) -> None:
    assert words_of(body) is None
    assert told_in(json.dumps(body).encode()) is None


def test_what_is_no_json_and_what_is_deep_has_none() -> None:
    assert told_in(b"<html>") is None
    assert told_in(b"\xff") is None
    assert told_in(b'{"error":' * 200 + b'"m"' + b"}" * 200) is None
    assert told_in(b"[" * 100_000) is None
