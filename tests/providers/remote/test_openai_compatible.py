"""OpenAI-shaped servers over a real socket: the error table, what is sent, and how streams may look."""

import json
from contextlib import aclosing
from typing import Any

import pytest

from adapters.canonical.errors import (
    BadUpstreamResponse,
    ContentRefused,
    ContextOverflow,
    GatewayError,
    InvalidRequest,
    ModelNotFound,
    StreamTruncated,
    UpstreamAuth,
    UpstreamConflict,
    UpstreamError,
    UpstreamInternal,
    UpstreamOverloaded,
    UpstreamQuota,
    UpstreamRateLimited,
    UpstreamTimeout,
)
from adapters.canonical.events import ChoiceFinished, ProviderReported, Started, UsageReported
from adapters.canonical.messages import USER, Message, Text, ToolCall
from adapters.canonical.request import Request, Sampling
from adapters.canonical.result import fold
from adapters.canonical.stop_reason import StopReason
from providers.base import ProviderSettings
from providers.registry import build
from providers.testing.contract import TEXT
from tests.mock_upstream import Answer, MockUpstream
from tests.providers.remote.openai_wire import (
    DONE,
    FIRST,
    HEAD,
    LAST,
    STREAM,
    USAGE,
    body_of,
    call_delta,
    chunk,
    collect,
    connected,
    failure,
    provider_for,
    request,
    texts,
    whole,
)

pytestmark = pytest.mark.timeout(20)


ERRORS: list[tuple[int, dict[str, Any], type[GatewayError], int]] = [
    (400, {"code": "invalid_value"}, InvalidRequest, 400),
    (400, {"code": "context_length_exceeded"}, ContextOverflow, 400),
    (400, {"code": "content_filter"}, ContentRefused, 400),
    (401, {"code": "invalid_api_key"}, UpstreamAuth, 502),
    (403, {}, UpstreamAuth, 502),
    (402, {}, UpstreamQuota, 502),
    (429, {"code": "insufficient_quota"}, UpstreamQuota, 502),
    (404, {"code": "model_not_found"}, ModelNotFound, 404),
    (408, {}, UpstreamTimeout, 504),
    (409, {}, UpstreamConflict, 409),
    (429, {"code": "rate_limit_exceeded"}, UpstreamRateLimited, 429),
    (500, {}, UpstreamInternal, 500),
    (502, {}, UpstreamError, 502),
    (503, {}, UpstreamOverloaded, 503),
    (504, {}, UpstreamTimeout, 504),
    (529, {}, UpstreamOverloaded, 503),
]


class TestErrors:
    @pytest.mark.parametrize(("status", "fields", "kind", "ours"), ERRORS)
    @pytest.mark.parametrize("stream", [True, False])
    async def test_every_row_of_the_error_table(
        self, status: int, fields: dict[str, Any], kind: type[GatewayError], ours: int, stream: bool
    ) -> None:
        answer = Answer.json(json.dumps({"error": {"message": "no", "type": "x", **fields}}).encode(), status)
        async with connected(answer) as (_, provider):
            error = await failure(provider, request(stream=stream))
        assert type(error) is kind
        assert error.status == ours
        if isinstance(error, UpstreamError):
            assert error.upstream_status == status

    @pytest.mark.parametrize(("status", "kind"), [(row[0], row[2]) for row in ERRORS if row[1] == {}])
    async def test_a_page_in_place_of_json_keeps_the_class_of_its_status(
        self, status: int, kind: type[GatewayError]
    ) -> None:
        page = b"<html><head><title>x</title></head><body>cf</body></html>"
        async with connected(Answer(status=status, headers={"content-type": "text/html"}, pieces=[page])) as (_, up):
            error = await failure(up, request())
        assert type(error) is kind
        assert "<" not in error.message
        assert error.code == (kind.default_code if kind in (UpstreamAuth, UpstreamQuota) else "bad_upstream_response")

    @pytest.mark.parametrize(
        ("path", "told"),
        [("/", "Not Found (providers.up.base_url has no path: should it end in /v1?)"), ("/v1", "no")],
    )
    async def test_a_404_below_an_address_without_a_path_says_so(self, path: str, told: str) -> None:
        message = told.partition(" (")[0]
        async with MockUpstream(Answer.json(json.dumps({"error": {"message": message}}).encode(), 404)) as upstream:
            provider = provider_for(upstream.base_url.removesuffix("/v1") + path)
            error = await failure(provider, request())
            await provider.aclose()
        assert error.message == told

    async def test_the_key_is_in_no_error(self) -> None:
        body = b'{"error": {"message": "Incorrect API key provided: secret-key", "code": "invalid_api_key"}}'
        async with connected(Answer.json(body, 401)) as (_, provider):
            error = await failure(provider, request())
        assert "secret-key" not in repr(error)
        assert error.should_retry is False

    @pytest.mark.parametrize("stream", [True, False])
    @pytest.mark.parametrize(
        "body",
        [
            {"id": "g1", "error": {"code": 429, "message": "provider limit"}, "user_id": "u"},
            {**HEAD, "choices": [{"index": 0, "error": {"code": 429, "message": "provider limit"}}]},
        ],
    )
    async def test_an_error_in_a_200_counts_as_its_own_status(self, body: dict[str, Any], stream: bool) -> None:
        answer = Answer.json(json.dumps(body).encode(), headers={"retry-after": "30", "x-should-retry": "true"})
        async with connected(answer) as (_, provider):
            error = await failure(provider, request(stream=stream))
        assert type(error) is UpstreamRateLimited
        assert (error.retry_after_s, error.should_retry) == (30, True)

    @pytest.mark.parametrize("body", [b"", b"null", b"{}", b'{"choices": []}', b"[1, 2]", b'{"choices": [{"index"'])
    async def test_a_200_without_an_answer_is_a_bad_response(self, body: bytes) -> None:
        async with connected(Answer.json(body)) as (_, provider):
            error = await failure(provider, request(stream=False))
        assert type(error) is BadUpstreamResponse

    @pytest.mark.parametrize("pieces", [[], [DONE], [FIRST], [FIRST, DONE], [FIRST, chunk(usage=USAGE), DONE]])
    async def test_a_stream_without_a_finish_reason_is_truncated(self, pieces: list[bytes]) -> None:
        async with connected(Answer.sse(pieces)) as (_, provider):
            error = await failure(provider, request())
        assert type(error) is StreamTruncated

    async def test_a_stream_without_done_after_its_finish_is_whole(self) -> None:
        async with connected(Answer.sse([FIRST, LAST, chunk({}, "stop")])) as (_, provider):
            assert texts(await collect(provider, request())) == {0: TEXT}


class TestRequests:
    async def test_chat_goes_to_chat_completions_and_prompts_go_to_completions(self) -> None:
        completion = {"id": "c", "object": "text_completion", "created": 1, "model": "m"}
        choice = {"index": 0, "text": "abc", "finish_reason": "stop", "logprobs": None}
        answer = Answer.json(json.dumps({**completion, "choices": [choice], "usage": USAGE}).encode())
        async with connected(whole({"content": TEXT}), answer) as (upstream, provider):
            await collect(provider, request(stream=False))
            events = await collect(
                provider, Request(model="m", dialect="openai.completions", prompts=("say abc",), stream=False)
            )
        assert [seen.path for seen in upstream.requests] == ["/v1/chat/completions", "/v1/completions"]
        assert texts(events) == {0: "abc"}
        assert body_of(upstream, 1)["prompt"] in ("say abc", ["say abc"])

    async def test_a_plain_request_does_not_stream_upstream(self) -> None:
        async with connected(whole({"content": TEXT}), STREAM) as (upstream, provider):
            await collect(provider, request(stream=False))
            await collect(provider, request(stream=True))
        assert not body_of(upstream, 0).get("stream")
        assert body_of(upstream, 1)["stream"] is True
        assert body_of(upstream, 1)["stream_options"]["include_usage"] is True

    async def test_params_fill_in_what_the_request_leaves_open(self) -> None:
        params = {"temperature": 0.5, "top_p": 0.9, "max_completion_tokens": 100, "nested": {"a": 1}}
        async with connected(STREAM, params=params) as (upstream, provider):
            await collect(provider, request(sampling=Sampling(top_p=0.1)))
            await collect(provider, request(max_tokens=5))
        assert body_of(upstream)["temperature"] == 0.5
        assert body_of(upstream)["top_p"] == 0.1
        assert body_of(upstream)["max_tokens"] == 100
        assert body_of(upstream)["nested"] == {"a": 1}
        assert body_of(upstream, 1)["max_tokens"] == 5
        assert "max_completion_tokens" not in body_of(upstream, 1)

    def test_params_cannot_name_what_is_no_default(self) -> None:
        with pytest.raises(ValueError, match=r"providers\.up\.params\.model"):
            provider_for("http://127.0.0.1:9/v1", params={"model": "x"})

    async def test_one_limit_field_goes_out_under_the_vendors_name(self) -> None:
        async with connected(STREAM, type="openai") as (upstream, provider):
            await collect(provider, request(max_tokens=30))
        sent = body_of(upstream)
        assert {name: value for name, value in sent.items() if name.startswith("max_")} == {"max_completion_tokens": 30}

    async def test_a_vendors_key_header_carries_the_key(self) -> None:
        async with connected(STREAM, type="azure") as (upstream, provider):
            await collect(provider, request())
        assert upstream.requests[0].headers["api-key"] == "secret-key"
        assert "authorization" not in upstream.requests[0].headers

    async def test_without_a_key_no_key_header_leaves(self) -> None:
        async with connected(STREAM, api_key=None) as (upstream, provider):
            await collect(provider, request())
        assert "authorization" not in upstream.requests[0].headers

    def test_a_vendor_without_an_address_needs_one(self) -> None:
        with pytest.raises(ValueError, match=r"providers\.up\.base_url: required"):
            build(ProviderSettings(name="up", type="openai-compatible"))

    async def test_a_photo_of_three_mebibytes_passes_unchanged(self) -> None:
        photo = "data:image/png;base64," + "A" * (3 << 20)
        asked = request(messages=(Message(role=USER, parts=(Text(text=photo),)),))
        async with connected(STREAM) as (upstream, provider):
            await collect(provider, asked)
        assert body_of(upstream)["messages"][0]["content"] == photo


class TestChoices:
    async def test_a_vendor_with_n_is_asked_once(self) -> None:
        pieces = [chunk({"content": "a"}, index=1), chunk({"content": "b"}, index=0)]
        ends = [chunk({}, "stop", index=0), chunk({}, "length", index=1), DONE]
        async with connected(Answer.sse([*pieces, *ends])) as (upstream, provider):
            events = await collect(provider, request(n=2))
        assert texts(events) == {0: "b", 1: "a"}
        assert len(upstream.requests) == 1
        assert body_of(upstream)["n"] == 2

    async def test_a_vendor_without_n_is_asked_once_for_each_choice(self) -> None:
        async with connected(STREAM, type="lm-studio") as (upstream, provider):
            events = await collect(provider, request(n=3, sampling=Sampling(seed=1)))
        result = fold(events)
        assert texts(events) == {0: TEXT, 1: TEXT, 2: TEXT}
        assert sum(isinstance(event, Started) for event in events) == 1
        assert sorted(event.choice for event in events if isinstance(event, ChoiceFinished)) == [0, 1, 2]
        assert result.usage is not None
        assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (3, 12)
        assert len(upstream.requests) == 3
        assert all("n" not in body_of(upstream, number) for number in range(3))
        assert len({body_of(upstream, number)["seed"] for number in range(3)}) == 3


class TestStreams:
    async def test_an_empty_id_on_later_deltas_of_a_call_means_absent(self) -> None:
        first = call_delta(0, name="get_weather", arguments="")
        first["tool_calls"][0]["id"] = "call_7"
        pieces = [chunk(first), chunk(call_delta(0, arguments='{"city":')), chunk(call_delta(0, arguments='"Oslo"}'))]
        async with connected(Answer.sse([*pieces, chunk({}, "tool_calls"), DONE])) as (_, provider):
            result = fold(await collect(provider, request()))
        assert result.choices[0].parts == (ToolCall(id="call_7", name="get_weather", arguments='{"city":"Oslo"}'),)
        assert result.choices[0].finish.reason is StopReason.TOOL_CALLS

    @pytest.mark.parametrize("line_end", [b"\r\n", b"\r"])
    async def test_other_line_ends_are_the_same_stream(self, line_end: bytes) -> None:
        pieces = [piece.replace(b"\n", line_end) for piece in STREAM.pieces]
        async with connected(Answer.sse(pieces)) as (_, provider):
            assert texts(await collect(provider, request())) == {0: TEXT}

    async def test_characters_cut_between_reads_stay_whole(self) -> None:
        data = b"".join(STREAM.pieces)
        cut = data.index("界".encode()) + 1
        async with connected(Answer.sse([data[:cut], data[cut : cut + 1], data[cut + 1 :]])) as (_, provider):
            assert texts(await collect(provider, request())) == {0: TEXT}

    async def test_usage_that_comes_after_the_finish_is_delivered(self) -> None:
        async with connected(STREAM) as (_, provider):
            events = await collect(provider, request())
        assert isinstance(events[-1], UsageReported)

    async def test_an_unmapped_field_of_the_first_chunk_comes_after_started(self) -> None:
        answer = Answer.sse([chunk({"content": TEXT}, "stop", x_vendor={"id": "v"})], headers={"x-request-id": "r"})
        async with connected(answer) as (_, provider):
            events = await collect(provider, request())
        assert events[0] == Started("c1", 1, "m", "r")
        assert isinstance(events[1], ProviderReported)
        assert events[1].fields == {"x_vendor": b'{"id": "v"}'}

    async def test_text_that_came_in_one_read_with_an_error_is_delivered_before_it(self) -> None:
        error = b'data: {"error":{"message":"engine overloaded","type":"server_error","code":529}}\n\n'
        async with (
            connected(Answer.sse([FIRST + error])) as (_, provider),
            aclosing(provider.stream(request())) as batches,
        ):
            assert texts(await anext(batches)) == {0: TEXT[:3]}
            with pytest.raises(UpstreamOverloaded):
                await anext(batches)


class TestModels:
    LIST = Answer.json(
        b'{"object": "list", "data": [{"id": "org/a", "object": "model", "created": 5, "owned_by": "me"},'
        b' {"id": "b", "max_model_len": 4096}, {"id": "c", "context_length": 8192}]}'
    )

    async def test_the_list_is_fetched_once_and_kept(self) -> None:
        async with connected(self.LIST) as (upstream, provider):
            found = await provider.models()
            assert await provider.models() is found
        assert [(entry.id, entry.created, entry.owned_by, entry.context) for entry in found] == [
            ("org/a", 5, "me", None),
            ("b", None, None, 4096),
            ("c", None, None, 8192),
        ]
        assert [(seen.method, seen.path) for seen in upstream.requests] == [("GET", "/v1/models")]
        assert upstream.requests[0].headers["authorization"] == "Bearer secret-key"

    @pytest.mark.parametrize(
        ("answer", "kind"),
        [
            (Answer.json(b'{"error": {"message": "no"}}', 401), UpstreamAuth),
            (Answer.json(b"<html>"), BadUpstreamResponse),
            (Answer.json(b'{"data": 1}'), BadUpstreamResponse),
            (Answer(status=404), ModelNotFound),
        ],
    )
    async def test_a_list_that_cannot_be_had_is_an_error_and_is_asked_for_again(
        self, answer: Answer, kind: type[GatewayError]
    ) -> None:
        async with connected(answer, self.LIST) as (_, provider):
            with pytest.raises(GatewayError) as caught:
                await provider.models()
            assert type(caught.value) is kind
            assert len(await provider.models()) == 3
