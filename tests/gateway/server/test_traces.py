"""Traces over real sockets: the client's is continued, every call is a span, and a collector gets what there is."""

import io
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from gateway.telemetry.metrics import Metrics
from gateway.telemetry.otlp import Otlp, Protocol
from gateway.telemetry.spans import Spans
from tests.cases.tiny_model import write_model
from tests.gateway.server.running import chat
from tests.mock_upstream import Answer, MockUpstream
from tests.serving import serving

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
GOOD = Answer.json(
    b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop",'
    b'"message":{"role":"assistant","content":"the-answer"}}],"usage":{"prompt_tokens":3,"completion_tokens":2}}'
)
BAD = Answer.json(b'{"error":{"message":"no"}}', 500)


class Collector:
    """What a collector of OTLP over HTTP was sent."""

    def __init__(self) -> None:
        self.heard: list[Mapping[str, str]] = []
        """The headers of each call."""
        self.spans: dict[str, Any] = {}
        self.metrics: dict[str, Any] = {}
        self.url = ""

    async def traces(self, request: web.Request) -> web.Response:
        self.heard.append(request.headers)
        self.take_spans(ExportTraceServiceRequest.FromString(await request.read()))
        return web.Response()

    async def measures(self, request: web.Request) -> web.Response:
        self.heard.append(request.headers)
        self.take_metrics(ExportMetricsServiceRequest.FromString(await request.read()))
        return web.Response()

    def take_spans(self, sent: ExportTraceServiceRequest) -> None:
        for resource in sent.resource_spans:
            for scope in resource.scope_spans:
                self.spans.update({span.name: span for span in scope.spans})

    def take_metrics(self, sent: ExportMetricsServiceRequest) -> None:
        for resource in sent.resource_metrics:
            for scope in resource.scope_metrics:
                self.metrics.update({metric.name: metric for metric in scope.metrics})


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector = Collector()
    app = web.Application()
    app.add_routes([web.post("/v1/traces", collector.traces), web.post("/v1/metrics", collector.measures)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()


class Servicer:
    """A collector of OTLP over gRPC, in front of the same books."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def spans(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:
        self._collector.heard.append(dict(context.invocation_metadata()))
        self._collector.take_spans(request)
        return ExportTraceServiceResponse()

    def metrics(self, request: ExportMetricsServiceRequest, context: Any) -> ExportMetricsServiceResponse:
        self._collector.heard.append(dict(context.invocation_metadata()))
        self._collector.take_metrics(request)
        return ExportMetricsServiceResponse()

    def handler(self, method: str) -> object:
        """What serves a call of this name."""
        serve: Any = self.spans if "Trace" in method else self.metrics
        kind: Any = ExportTraceServiceRequest if "Trace" in method else ExportMetricsServiceRequest
        return grpc.unary_unary_rpc_method_handler(
            serve, request_deserializer=kind.FromString, response_serializer=lambda answer: answer.SerializeToString()
        )


class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    def __init__(self, servicer: Servicer) -> None:
        self._servicer = servicer

    def service(self, call: Any) -> object:
        return self._servicer.handler(call.method)


@contextmanager
def collecting_over_grpc() -> Iterator[Collector]:
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Handlers(Servicer(collector)),))
    collector.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()


async def ask(
    upstream: MockUpstream, telemetry: str = "{}", count: int = 1, path: str = "/v1/chat/completions", **headers: str
) -> int:
    """Asks a gateway in front of the upstream, stops it, and gives the last status."""
    extra = "reliability: {retry: {attempts: 2, max_wait_s: 0.01}}\nstorage: {url: memory}\n"
    text = (
        f"version: 1\nproviders:\n  up: {{type: openai-compatible, base_url: '{upstream.base_url}'}}\n"
        f"telemetry: {telemetry}\n{extra}"
    )
    async with serving(text) as url, aiohttp.ClientSession() as session:
        for number in range(count):
            sent = headers if number == 0 else {}
            async with session.post(url + path, json=chat("up/m", session_id="s-1"), headers=sent) as answer:
                await answer.read()
                status = answer.status
    return status


async def test_a_client_s_trace_goes_on_to_the_upstream_without_any_collector() -> None:
    async with MockUpstream(GOOD) as upstream:
        assert await ask(upstream, traceparent=PARENT, tracestate="vendor=1") == 200
        assert upstream.requests[0].headers["traceparent"] == PARENT
        assert upstream.requests[0].headers["tracestate"] == "vendor=1"


async def test_a_request_to_no_route_is_named_by_its_method_alone() -> None:
    async with collecting() as collector, MockUpstream(GOOD) as upstream:
        assert await ask(upstream, f"{{otlp: '{collector.url}'}}", path="/nowhere/secret-path") == 404
        assert set(collector.spans) == {"POST"}


async def test_a_trace_ends_with_its_request() -> None:
    async with MockUpstream(GOOD) as upstream:
        await ask(upstream, count=2, traceparent=PARENT)
        assert "traceparent" not in upstream.requests[1].headers


async def test_a_request_and_its_calls_are_spans_of_the_client_s_trace() -> None:
    async with collecting() as collector, MockUpstream(BAD, GOOD) as upstream:
        assert await ask(upstream, f"{{otlp: '{collector.url}'}}", traceparent=PARENT) == 200
        server = collector.spans["POST /v1/chat/completions"]
        call = collector.spans["chat m"]
        assert server.trace_id.hex() == call.trace_id.hex() == TRACE
        assert server.parent_span_id.hex() == SPAN
        assert call.parent_span_id == server.span_id
        sent = [request.headers["traceparent"].split("-") for request in upstream.requests]
        assert [part[1] for part in sent] == [TRACE, TRACE]
        assert sent[1][2] == call.span_id.hex() != sent[0][2]
        values = {item.key: item.value for item in server.attributes}
        assert values["gen_ai.conversation.id"].string_value == "s-1"
        assert values["gen_ai.usage.output_tokens"].int_value == 2
        assert values["gen_ai.provider.name"].string_value == "up"
        assert server.start_time_unix_nano < call.start_time_unix_nano < call.end_time_unix_nano


async def test_what_the_engine_does_are_spans_below_its_call(tmp_path: Path) -> None:
    models = f"{{tiny: {{source: '{write_model(tmp_path / 'm')}'}}}}"
    local = f"local: {{type: local, device: cpu, threads: 1, models: {models}}}"
    async with collecting() as collector:
        text = f"version: 1\nproviders:\n  {local}\nstorage: {{url: memory}}\ntelemetry: {{otlp: '{collector.url}'}}\n"
        async with serving(text) as url, aiohttp.ClientSession() as session:
            asked = {"model": "local/tiny", "prompt": "hi", "max_tokens": 4, "ignore_eos": True}
            async with session.post(f"{url}/v1/completions", json=asked, headers={"traceparent": PARENT}) as answer:
                assert answer.status == 200, await answer.text()
    call = collector.spans["chat tiny"]
    phases = [collector.spans[f"gateway.engine.{phase}"] for phase in ("queue", "prefill", "decode")]
    assert {span.parent_span_id for span in phases} == {call.span_id}
    assert {span.trace_id.hex() for span in phases} == {TRACE}
    times = [time for span in phases for time in (span.start_time_unix_nano, span.end_time_unix_nano)]
    assert times == sorted(times)
    assert call.start_time_unix_nano <= times[0]
    assert times[-1] <= call.end_time_unix_nano


async def test_a_trace_that_is_not_recorded_makes_no_spans_but_goes_on() -> None:
    async with collecting() as collector, MockUpstream(GOOD) as upstream:
        await ask(upstream, f"{{otlp: '{collector.url}'}}", traceparent=PARENT[:-1] + "0")
        assert collector.spans == {}
        assert upstream.requests[0].headers["traceparent"] == PARENT[:-1] + "0"


async def test_metrics_go_to_the_collector_under_the_conventions_names() -> None:
    async with collecting() as collector, MockUpstream(GOOD) as upstream:
        await ask(upstream, f"{{otlp: '{collector.url}'}}")
        point = collector.metrics["gen_ai.server.request.duration"].histogram.data_points[0]
        assert point.count == 1
        assert {item.key for item in point.attributes} >= {"gen_ai.request.model", "gen_ai.provider.name"}
        usage = collector.metrics["gen_ai.client.token.usage"].histogram.data_points
        assert sorted(point.sum for point in usage) == [2, 3]


@pytest.mark.parametrize("content", ["off", "on"])
async def test_texts_are_told_only_where_the_file_says_so(content: str) -> None:
    async with collecting() as collector, MockUpstream(GOOD) as upstream:
        await ask(upstream, f"{{otlp: '{collector.url}', content: {content}}}")
        said = str(collector.spans) + str(collector.metrics)
        assert ("the-answer" in said) == (content == "on")
        keys = {item.key for item in collector.spans["POST /v1/chat/completions"].attributes}
        assert ("gen_ai.input.messages" in keys) == (content == "on")


async def test_no_trace_is_begun_for_requests_outside_the_sample() -> None:
    async with collecting() as collector, MockUpstream(GOOD) as upstream:
        await ask(upstream, f"{{otlp: '{collector.url}', sample: 0}}")
        assert collector.spans == {}


async def test_a_collector_may_be_spoken_to_over_grpc() -> None:
    with collecting_over_grpc() as collector:
        async with MockUpstream(GOOD) as upstream:
            assert await ask(upstream, f"{{otlp: '{collector.url}', otlp_protocol: grpc}}", traceparent=PARENT) == 200
    assert collector.spans["chat m"].trace_id.hex() == TRACE
    assert "gateway.requests" in collector.metrics


async def test_a_collector_is_shown_its_key_over_both_protocols() -> None:
    headers = "otlp_headers: {X-Team-Key: secret-of-ours}"
    with collecting_over_grpc() as one:
        async with MockUpstream(GOOD) as upstream, collecting() as other:
            await ask(upstream, f"{{otlp: '{one.url}', otlp_protocol: grpc, {headers}}}")
            await ask(upstream, f"{{otlp: '{other.url}', {headers}}}")
    for collector in (one, other):
        assert [heard["x-team-key"] for heard in collector.heard] == ["secret-of-ours"] * 2


@pytest.mark.parametrize(
    ("url", "protocol", "module"),
    [
        ("http://c:4317", "auto", "grpc"),
        ("http://c:4318", "auto", "http"),
        ("http://c", "auto", "http"),
        ("http://c:4317", "http", "http"),
        ("https://c:443", "grpc", "grpc"),
    ],
)
def test_the_port_or_the_setting_says_how_a_collector_is_spoken_to(url: str, protocol: Protocol, module: str) -> None:
    otlp = Otlp(
        url, Spans(lambda bits: 1, 0.0), Metrics().snapshot, now=lambda: 0.0, lost=lambda: None, protocol=protocol
    )
    for exporter in (otlp._span_exporter, otlp._metric_exporter):
        assert f".proto.{module}." in type(exporter).__module__
        exporter.shutdown()


async def test_a_collector_that_is_away_is_no_failure_and_nothing_but_the_log_tells_of_it() -> None:
    said = io.StringIO()
    handler = logging.StreamHandler(said)  # not caplog, which hears loggers that do not propagate as well
    logging.getLogger().addHandler(handler)
    try:
        async with MockUpstream(GOOD) as upstream:
            assert await ask(upstream, "{otlp: 'http://127.0.0.1:9'}") == 200
    finally:
        logging.getLogger().removeHandler(handler)
    assert "export" not in said.getvalue()
