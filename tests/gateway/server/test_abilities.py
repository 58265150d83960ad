"""Embeddings, ranks, scores and tokens at the gateway's socket, with OpenAI's SDK, over a mock upstream's socket."""

import asyncio
import json
from array import array
from base64 import b64encode
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.gateway.server.running import error_of
from tests.gateway.server.two_upstreams import TwoUpstreams, two_upstreams
from tests.mock_upstream import Answer

pytestmark = pytest.mark.timeout(20)

ONE, TWO = [0.5, -1.0, 0.25], [1.5, 2.0, 3.0]
Embedding = Callable[[list[float]], object]


def floats(vector: list[float]) -> object:
    return vector


def packed(vector: list[float]) -> object:
    return b64encode(array("f", vector).tobytes()).decode()


def embeddings(*vectors: list[float], write: Embedding = floats, **more: object) -> Answer:
    rows = [{"object": "embedding", "index": i, "embedding": write(vector)} for i, vector in enumerate(vectors)]
    usage = {"prompt_tokens": 7, "total_tokens": 7}
    return Answer.json(
        json.dumps({"object": "list", "data": rows[::-1], "model": "up", "usage": usage, **more}).encode()
    )


def ranks(*scores: tuple[int, float], word: str = "relevance_score", **more: object) -> Answer:
    rows = [{"index": index, word: score} for index, score in scores]
    return Answer.json(json.dumps({"results": rows, "usage": {"total_tokens": 9}, **more}).encode())


def stage(
    *answers: Answer, kind: str = "vllm", extra: str = "", reliability: str = "{retry: {attempts: 1}}"
) -> AbstractAsyncContextManager[TwoUpstreams]:
    """Two servers of one kind; the alias `both` goes to the one that gives the answers, then to one of vectors."""
    return two_upstreams(
        answers, embeddings(TWO), types=(kind, kind), alias="both", reliability=reliability, extra=extra
    )


@pytest.mark.parametrize("write", [floats, packed])
@pytest.mark.parametrize("wanted", [None, "float", "base64"])
async def test_the_sdk_gets_its_vectors_in_order_however_either_side_writes_them(
    write: Embedding, wanted: str | None
) -> None:
    options: dict[str, Any] = {} if wanted is None else {"encoding_format": wanted}
    async with stage(embeddings(ONE, TWO, write=write)) as at:
        found = await at.sdk.embeddings.create(model="a/m", input=["x", "y"], dimensions=3, user="u", **options)
        assert at.sent() == {
            "model": "m", "input": ["x", "y"], "encoding_format": "base64", "dimensions": 3, "user": "u",
        }  # fmt: skip
        assert at.a.requests[0].path == "/v1/embeddings"
        assert at.a.requests[0].headers["authorization"] == "Bearer up-key"
    assert [row.index for row in found.data] == [0, 1]
    vectors = [row.embedding for row in found.data]
    assert vectors == ([packed(ONE), packed(TWO)] if wanted == "base64" else [ONE, TWO])
    assert (found.model, found.usage.prompt_tokens, found.usage.total_tokens) == ("a/m", 7, 7)


async def test_who_asks_is_told_what_vectors_cost(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("a/m: {input: 10, output: 0}\n")
    async with stage(
        embeddings(ONE), extra=f"prices: {{file: {tmp_path}/prices.yaml}}\nstorage: {{url: memory}}\n"
    ) as at:
        found = await at.sdk.embeddings.with_raw_response.create(
            model="a/m", input="x", extra_headers={"x-gateway-metrics": "true"}
        )
        assert found.headers["x-gateway-metrics"].endswith(", cost_usd=0.00007")


async def test_the_synchronous_sdk_gets_them_too() -> None:
    async with stage(embeddings(ONE)) as at:

        def call() -> list[float]:
            with openai.OpenAI(base_url=f"{at.url}/v1", api_key="k", max_retries=0) as sdk:
                return sdk.embeddings.create(model="a/m", input="x").data[0].embedding

        assert await asyncio.to_thread(call) == ONE
        assert at.sent()["input"] == "x"


@pytest.mark.parametrize("given", [[1, 2, 3], [[1, 2], [3]], ["a"]])
async def test_tokens_and_lists_reach_the_provider(given: Any) -> None:
    vectors = [ONE] * (len(given) if isinstance(given[0], list) else 1)
    async with stage(embeddings(*vectors)) as at:
        await at.sdk.embeddings.create(model="a/m", input=given)
        assert at.sent()["input"] == ([given] if isinstance(given[0], int) else given[0] if given == ["a"] else given)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": ["a", [1]], "dimensions": 0}, "dimensions"),
        ({"input": ["a", 1]}, "input[1]"),
        ({"input": [[]]}, "input[0]"),
        ({"input": [-1]}, "input[0]"),
        ({"input": ["x"] * 2049}, "input"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"model": "a/m"}, "input"),
        ({"input": "a", "model": ""}, "model"),
    ],
)
async def test_bad_requests_are_refused_by_the_fields_name_and_reach_no_provider(
    fields: dict[str, Any], param: str
) -> None:
    async with stage(embeddings(ONE)) as at:
        async with at.session.post(f"{at.url}/v1/embeddings", json={"model": "a/m", **fields}) as answer:
            assert answer.status == 400
            assert (await error_of(answer))["param"] == param
        assert not at.a.requests


async def test_unknown_fields_go_to_a_provider_of_the_same_dialect() -> None:
    async with stage(embeddings(ONE)) as at:
        await at.sdk.embeddings.create(model="a/m", input="x", extra_body={"input_type": "query", "priority": 3})
        assert at.sent()["input_type"] == "query"


@pytest.mark.parametrize(("policy", "status"), [("error", 400), ("drop", 200)])
async def test_what_a_provider_cannot_express_is_refused_or_dropped_and_listed(policy: str, status: int) -> None:
    async with stage(embeddings(ONE), kind="llama.cpp", extra=f"server: {{unsupported_params: {policy}}}\n") as at:
        code, body, headers = await at.post("/v1/embeddings", {"model": "a/m", "input": "x", "dimensions": 2})
        assert code == status
        if policy == "drop":
            assert headers["x-gateway-dropped-params"] == "dimensions"
            assert "dimensions" not in at.sent()
        else:
            assert body["error"]["param"] == "dimensions"


async def test_a_failing_provider_is_left_for_the_next_and_the_answer_says_who_gave_it() -> None:
    async with stage(Answer.json(b'{"error":{"message":"no"}}', status=503)) as at:
        code, body, headers = await at.post("/v1/embeddings", {"model": "both", "input": "x"})
        assert (code, body["model"]) == (200, "both")
        assert (headers["x-gateway-provider"], headers["x-gateway-upstream-model"]) == ("b", "n")
        assert json.loads(at.b.requests[0].body)["model"] == "n"
        assert headers["x-request-id"] == at.b.requests[0].headers["x-request-id"]
    lines = [json.loads(line) for line in at.log.getvalue().splitlines()]
    (line,) = [line for line in lines if line.get("path") == "/v1/embeddings"]
    assert (line["model"], line["provider"], line["attempts"], line["prompt_tokens"]) == ("both", "b", 2, 7)


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        (Answer.json(b'{"error":{"message":"bad key"}}', status=401), 502, "upstream_auth"),
        (
            Answer.json(b'{"error":{"message":"slow","code":"rate_limit_exceeded"}}', status=429),
            429,
            "rate_limit_exceeded",
        ),
        (Answer.json(b'{"error":{"message":"odd"}}'), 502, "upstream_error"),
        (Answer.json(b"[1, 2]"), 502, "bad_upstream_response"),
        (Answer.json(b'{"data": []}'), 502, "bad_upstream_response"),
        (embeddings(ONE, TWO), 502, "bad_upstream_response"),
        (embeddings([]), 502, "bad_upstream_response"),
        (embeddings(ONE, write=lambda vector: "!"), 502, "bad_upstream_response"),
        (embeddings(ONE, write=lambda vector: "AAA="), 502, "bad_upstream_response"),
        (Answer(headers={"content-type": "text/html"}, pieces=(b"<p>login</p>",)), 502, "bad_upstream_response"),
        (Answer(then="reset", silent=True), 502, "upstream_unreachable"),
    ],
)
async def test_what_is_no_good_answer_is_the_right_error(answer: Answer, status: int, code: str) -> None:
    async with stage(answer) as at:
        found, body, _ = await at.post("/v1/embeddings", {"model": "a/m", "input": "x"})
    assert (found, body["error"]["code"]) == (status, code)
    assert "bad key" not in body["error"]["message"]


async def test_the_whole_deadline_ends_a_call_that_hangs() -> None:
    async with stage(Answer(silent=True, then="hang"), reliability="{timeouts: {total_s: 0.2}}") as at:
        status, body, _ = await at.post("/v1/embeddings", {"model": "a/m", "input": "x"})
        assert (status, body["error"]["code"]) == (504, "upstream_timeout")
        await at.a.idle()


async def test_a_client_that_leaves_cancels_the_call() -> None:
    async with stage(Answer(silent=True, then="hang")) as at:
        call = asyncio.create_task(at.post("/v1/embeddings", {"model": "a/m", "input": "x"}))
        await at.a.seen(1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await at.a.idle()


async def test_a_key_may_use_its_own_models_only() -> None:
    auth = "auth: {keys: [{id: one, secret: s3cret-s3cret, models: [both]}]}\n"
    async with stage(embeddings(ONE), extra=auth) as at:
        url = f"{at.url}/v1/embeddings"
        async with at.session.post(url, json={"model": "both", "input": "x"}) as answer:
            assert answer.status == 401
        headers = {"authorization": "Bearer s3cret-s3cret"}
        async with at.session.post(url, json={"model": "both", "input": "x"}, headers=headers) as answer:
            assert answer.status == 200
        async with at.session.post(url, json={"model": "a/other", "input": "x"}, headers=headers) as answer:
            assert answer.status == 403


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": "x"}),
        ("/v1/rerank", {"query": "q", "documents": ["d"]}),
        ("/score", {"text_1": "q", "text_2": "d"}),
        ("/tokenize", {"messages": [{"role": "user", "content": "x"}]}),
        ("/detokenize", {"tokens": [1]}),
        ("/v1/chat/completions/input_tokens", {"messages": [{"role": "user", "content": "x"}]}),
    ],
)
async def test_a_model_without_the_ability_is_a_400_that_names_it(path: str, body: dict[str, Any]) -> None:
    async with stage(embeddings(ONE), kind="groq") as at:
        code, found, _ = await at.post(path, {"model": "a/m", **body})
        assert code == 400
        assert found["error"]["param"] == "model"
        assert not at.a.requests


RERANK = {"model": "a/m", "query": "q", "documents": ["zero", {"text": "one"}, "two"]}


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank"])
async def test_documents_come_back_best_first_with_their_text(path: str) -> None:
    answer = ranks((0, 0.1), (2, 0.9), (1, 0.5))
    async with stage(replace(answer, headers={**answer.headers, "x-request-id": "up-9"})) as at:
        code, body, headers = await at.post(path, {**RERANK, "top_n": 2, "max_tokens_per_doc": 9})
        assert headers["x-gateway-upstream-request-id"] == "up-9"
        assert at.sent() == {
            "model": "m", "query": "q", "documents": ["zero", "one", "two"], "top_n": 2, "max_tokens_per_doc": 9,
        }  # fmt: skip
        assert at.a.requests[0].path == "/v1/rerank"
    assert code == 200
    assert body["results"] == [
        {"index": 2, "document": {"text": "two"}, "relevance_score": 0.9},
        {"index": 1, "document": {"text": "one"}, "relevance_score": 0.5},
    ]
    assert (body["model"], body["usage"]) == ("a/m", {"prompt_tokens": 9, "total_tokens": 9})


async def test_coheres_path_answers_in_coheres_form() -> None:
    async with stage(ranks((0, 0.1), (2, 0.9), (1, 0.5))) as at:
        _, body, _ = await at.post("/v2/rerank", RERANK)
        _, with_documents, _ = await at.post("/v1/rerank", {**RERANK, "return_documents": False})
    assert body["results"][0] == {"index": 2, "relevance_score": 0.9}
    assert body["meta"] == {"api_version": {"version": "2"}, "tokens": {"input_tokens": 9}}
    assert "document" not in with_documents["results"][0]


async def test_tei_is_asked_in_its_own_words_beside_its_version() -> None:
    rows = json.dumps([{"index": 1, "score": 0.7}, {"index": 0, "score": 0.2}, {"index": 2, "score": 0.1}]).encode()
    async with stage(Answer.json(rows), kind="tei") as at:
        _, body, _ = await at.post("/v1/rerank", {**RERANK, "top_n": 1})
        assert at.a.requests[0].path == "/rerank"
        assert at.sent() == {"model": "m", "query": "q", "texts": ["zero", "one", "two"]}
    assert [row["index"] for row in body["results"]] == [1]


@pytest.mark.parametrize(
    "answer",
    [ranks((0, 1.0)), ranks((0, 1.0), (1, 0.5), (3, 0.1)), ranks((0, 1.0), (0, 0.5), (1, 0.1)), Answer.json(b"{}")],
)
async def test_scores_of_other_documents_than_were_sent_are_no_answer(answer: Answer) -> None:
    async with stage(answer) as at:
        code, body, _ = await at.post("/v1/rerank", RERANK)
    assert (code, body["error"]["code"]) == (502, "bad_upstream_response")


@pytest.mark.parametrize("path", ["/v1/score", "/score"])
async def test_one_text_is_scored_against_many_in_their_order(path: str) -> None:
    async with stage(ranks((1, 0.9), (0, 0.1))) as at:
        _, body, _ = await at.post(path, {"model": "a/m", "text_1": "q", "text_2": ["x", "y"]})
        assert len(at.a.requests) == 1
    assert [(row["index"], row["score"], row["object"]) for row in body["data"]] == [
        (0, 0.1, "score"),
        (1, 0.9, "score"),
    ]
    assert (body["object"], body["usage"]["total_tokens"]) == ("list", 9)


async def test_pairs_are_scored_pair_by_pair() -> None:
    async with stage(ranks((0, 0.3), (1, 0.2)), ranks((0, 0.9))) as at:
        pairs = {"text_1": ["p", "q", "p"], "text_2": ["x", "y", "z"]}
        _, body, _ = await at.post("/v1/score", {"model": "a/m", **pairs})
        assert [(json.loads(each.body)["query"], json.loads(each.body)["documents"]) for each in at.a.requests] == [
            ("p", ["x", "z"]),
            ("q", ["y"]),
        ]
    assert [row["score"] for row in body["data"]] == [0.3, 0.9, 0.2]
    assert body["usage"]["total_tokens"] == 18


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/rerank", {"query": "q", "documents": []}, "documents"),
        ("/v1/rerank", {"query": "q", "documents": [{"title": "t"}]}, "documents[0]"),
        ("/v1/rerank", {"documents": ["a"]}, "query"),
        ("/v1/rerank", {"query": "q", "documents": ["a"], "top_n": 0}, "top_n"),
        ("/v1/rerank", {"query": "q", "documents": ["a"] * 10_001}, "documents"),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_2"),
        ("/v1/score", {"text_1": "a", "text_2": []}, "text_2"),
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": []}, "prompt"),
        ("/detokenize", {"tokens": ["a"]}, "tokens[0]"),
        ("/detokenize", {"tokens": [1], "odd": 1}, "odd"),
    ],
)
async def test_bad_ranks_scores_and_tokens_are_refused_by_name(path: str, fields: dict[str, Any], param: str) -> None:
    async with stage(ranks((0, 1.0))) as at:
        code, body, _ = await at.post(path, {"model": "a/m", **fields})
        assert (code, body["error"]["param"]) == (400, param)
        assert not at.a.requests


async def test_vllm_tells_the_tokens_of_a_prompt_and_their_text() -> None:
    tokens = Answer.json(b'{"count":2,"max_model_len":64,"tokens":[5,6],"token_strs":["a","b"]}')
    async with stage(tokens, Answer.json(b'{"prompt":"ab"}')) as at:
        _, body, _ = await at.post("/tokenize", {"model": "a/m", "prompt": "ab", "return_token_strs": True})
        assert at.a.requests[0].path == "/tokenize"
        assert at.sent() == {"model": "m", "prompt": "ab", "return_token_strs": True}
        assert body == {"count": 2, "max_model_len": 64, "tokens": [5, 6], "token_strs": ["a", "b"]}
        _, text, _ = await at.post("/detokenize", {"model": "a/m", "tokens": [5, 6]})
        assert (text, at.a.requests[1].path) == ({"prompt": "ab", "content": "ab"}, "/detokenize")
        assert at.sent() == {"model": "m", "tokens": [5, 6]}


async def test_vllm_counts_a_conversation_with_its_own_tokenizer() -> None:
    chat = {"model": "a/m", "messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": False}
    async with stage(Answer.json(b'{"count":2,"max_model_len":64,"tokens":[5,6]}')) as at:
        _, body, _ = await at.post("/v1/chat/completions/input_tokens", {**chat, "max_tokens": 5, "stream": True})
        assert body["input_tokens"] == 2
        sent = at.sent()
        assert sent["messages"] == chat["messages"]
        assert "max_tokens" not in sent
        assert sent["add_generation_prompt"] is False
        await at.post("/tokenize", chat)
        assert at.sent() == sent


async def test_llama_cpp_counts_with_its_own_endpoint() -> None:
    async with stage(Answer.json(b'{"input_tokens": 11}'), kind="llama.cpp") as at:
        chat = {"model": "a/m", "messages": [{"role": "user", "content": "hi"}]}
        _, body, _ = await at.post("/v1/chat/completions/input_tokens", chat)
        assert body["input_tokens"] == 11
        assert at.a.requests[0].path == "/v1/chat/completions/input_tokens"
