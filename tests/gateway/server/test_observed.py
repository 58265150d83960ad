"""What clients, upstreams and Prometheus are told about requests, over real sockets."""

import asyncio
import re

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from adapters.canonical.errors import UpstreamInternal
from adapters.canonical.events import (
    ChoiceFinished,
    Started,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from providers.abilities import Measure
from providers.base import Batch
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import FINISH, Running, chat, running, text, until

PROMETHEUS = "telemetry: {prometheus: true}\n"
ALIAS = "models: {fast: {targets: [fake/m]}}\n"
STREAMED = [
    text("a"),
    text("b"),
    [*FINISH, UsageReported(Usage(prompt_tokens=7, completion_tokens=2, cached_tokens=4))],
]
KEYS = """\
auth:
  keys:
    - {id: team-a, secret: secret-of-team-a}
    - {id: boss, secret: secret-of-the-boss, admin: true}
"""


async def numbers(gateway: Running, **headers: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample of /metrics by its name and labels."""
    async with gateway.session.get(gateway.url + "/metrics", headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["content-type"].startswith("text/plain")
        families = text_string_to_metric_families(await answer.text())
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }


def of(found: dict[tuple[str, tuple[tuple[str, str], ...]], float], name: str, **labels: str) -> float:
    """The sum of the samples of this name that have these labels."""
    return sum(
        value for (sample, has), value in found.items() if sample == name and labels.items() <= dict(has).items()
    )


async def test_a_request_is_counted_by_route_model_provider_and_status() -> None:
    async with running(ScriptedProvider("fake", STREAMED), extra=PROMETHEUS + ALIAS) as gateway:
        async with gateway.post(chat("fast", stream=True)) as answer:
            await answer.read()
        found = await numbers(gateway)
        where = {"http_route": "/v1/chat/completions", "gen_ai_request_model": "fast", "gen_ai_provider_name": "fake"}
        assert of(found, "gateway_requests_total", http_response_status_code="200", error_type="", **where) == 1
        assert of(found, "gen_ai_server_request_duration_seconds_count", **where) == 1
        assert of(found, "gen_ai_server_time_to_first_token_seconds_count", **where) == 1
        assert of(found, "gen_ai_server_time_per_output_token_seconds_count", **where) == 1
        assert of(found, "gateway_queue_duration_seconds_count", **where) == 1
        assert of(found, "gateway_tokens_total", gen_ai_token_type="input", **where) == 7
        assert of(found, "gateway_tokens_total", gen_ai_token_type="cached", **where) == 4
        assert of(found, "gen_ai_client_token_usage_sum", gen_ai_token_type="output", **where) == 2
        assert of(found, "gateway_attempts_total", gateway_attempt_outcome="answered", gen_ai_provider_name="fake") == 1
        assert of(found, "gateway_breaker_state", gateway_breaker_state="closed", gen_ai_provider_name="fake") == 1


async def test_failures_are_counted_by_their_class_and_calls_by_their_end() -> None:
    broken = ScriptedProvider("fake", [UpstreamInternal("no")])
    extra = PROMETHEUS + ALIAS + "reliability: {retry: {attempts: 2, max_wait_s: 0.01}}\n"
    async with running(broken, extra=extra) as gateway:
        async with gateway.post(chat("fast")) as answer:
            assert answer.status == 500
        found = await numbers(gateway)
        assert of(found, "gateway_requests_total", error_type="UpstreamInternal", http_response_status_code="500") == 1
        assert of(found, "gateway_attempts_total", gateway_attempt_outcome="failed", gateway_attempt_kind="first") == 1
        assert of(found, "gateway_attempts_total", gateway_attempt_outcome="failed", gateway_attempt_kind="again") == 1


async def test_a_call_of_a_tool_that_nobody_declared_is_passed_on_and_counted() -> None:
    calls: list[Batch] = [[Started(id="u")]]
    for part, name in enumerate(("find", "made_up")):
        calls += [[ToolCallStarted(0, part, f"call_{part}", name), ToolArgumentsDelta(0, part, "{}")]]
        calls += [[ToolCallFinished(0, part)]]
    provider = ScriptedProvider("fake", [*calls, [ChoiceFinished(0, StopReason.TOOL_CALLS)]])
    tools = [{"type": "function", "function": {"name": "find"}}]
    async with running(provider, extra=PROMETHEUS) as gateway:
        async with gateway.post(chat(tools=tools)) as answer:
            called = (await answer.json())["choices"][0]["message"]["tool_calls"]
        assert [call["function"]["name"] for call in called] == ["find", "made_up"]
        found = await numbers(gateway)
        assert of(found, "gateway_tool_calls_undeclared_total", gen_ai_provider_name="fake") == 1


async def test_names_that_clients_make_up_are_no_labels() -> None:
    async with running(ScriptedProvider("fake", STREAMED), extra=PROMETHEUS) as gateway:
        for number in range(3):
            async with gateway.post(chat(f"no-such-model-{number}")) as answer:
                assert answer.status == 404
            async with gateway.session.get(f"{gateway.url}/made/up/{number}") as answer:
                assert answer.status == 404
        found = await numbers(gateway)
        assert not any("made" in str(labels) or "no-such-model" in str(labels) for _, labels in found)
        assert of(found, "gateway_requests_total", http_response_status_code="404") == 6


async def test_metrics_show_what_runs_now() -> None:
    gate = asyncio.Event()
    async with running(ScriptedProvider("fake", [STREAMED[0], gate, *STREAMED[1:]]), extra=PROMETHEUS) as gateway:
        async with gateway.post(chat(stream=True)) as answer:
            await answer.content.readany()
            found = await numbers(gateway)
            assert of(found, "gateway_requests_active") == 2  # that one, and the one for the metrics
            assert of(found, "gateway_target_active") == 1
            gate.set()
            await answer.read()
        await until(lambda: gateway.app.service.active == 0)


async def test_there_are_no_metrics_unless_they_are_asked_for() -> None:
    async with (
        running(ScriptedProvider("fake", STREAMED)) as gateway,
        gateway.session.get(gateway.url + "/metrics") as answer,
    ):
        assert answer.status == 404


async def test_metrics_are_for_keys_that_say_admin() -> None:
    async with running(ScriptedProvider("fake", STREAMED), extra=PROMETHEUS + KEYS) as gateway:
        for secret, status in (("secret-of-team-a", 403), ("", 401), ("secret-of-the-boss", 200)):
            headers = {"Authorization": f"Bearer {secret}"} if secret else {}
            async with gateway.session.get(gateway.url + "/metrics", headers=headers) as answer:
                assert answer.status == status


async def test_a_client_is_told_the_speed_of_its_whole_answer() -> None:
    async with running(ScriptedProvider("fake", STREAMED)) as gateway:
        async with gateway.post(chat(), headers={"x-gateway-metrics": "true"}) as answer:
            told = answer.headers["x-gateway-metrics"]
        assert re.fullmatch(r"queue_ms=[\d.]+, ttft_ms=[\d.]+, tokens_per_s=[\d.]+", told), told
        async with gateway.post(chat()) as answer:
            assert "x-gateway-metrics" not in answer.headers
        async with gateway.post(chat("nobody/has"), headers={"x-gateway-metrics": "true"}) as answer:
            assert answer.status == 404
            assert "x-gateway-metrics" not in answer.headers


async def test_a_stream_that_is_asked_to_ends_with_its_speed_as_a_comment() -> None:
    async with running(ScriptedProvider("fake", STREAMED)) as gateway:
        async with gateway.post(chat(stream=True), headers={"x-gateway-metrics": "true"}) as answer:
            assert "ttft_ms=" in answer.headers["x-gateway-metrics"]
            body = await answer.text()
        assert re.search(r"^: x-gateway-metrics queue_ms=[\d.]+, ttft_ms=[\d.]+", body, re.MULTILINE)
        assert body.endswith("data: [DONE]\n\n")
        frames = [line[6:] for line in body.splitlines() if line.startswith("data: {")]
        assert "".join(orjson.loads(frame)["choices"][0]["delta"].get("content") or "" for frame in frames[:3]) == "ab"


class WithEngine(ScriptedProvider):
    def measures(self) -> list[Measure]:
        return [Measure("m", "running", 3), Measure("m", "generated_tokens", 40, grows=True)]


async def test_the_engine_s_numbers_are_among_the_metrics() -> None:
    async with running(WithEngine("fake", STREAMED), extra=PROMETHEUS) as gateway:
        found = await numbers(gateway)
        assert of(found, "gateway_engine_running", gen_ai_response_model="m") == 3
        assert of(found, "gateway_engine_generated_tokens_total", gen_ai_response_model="m") == 40


@pytest.mark.parametrize("text_form", ["json", "text"])
async def test_no_prompt_is_in_the_metrics(text_form: str) -> None:
    extra = f"telemetry: {{prometheus: true, log: {text_form}}}\n"
    async with running(ScriptedProvider("fake", STREAMED), extra=extra) as gateway:
        body = chat(messages=[{"role": "user", "content": "the-secret-question"}])
        async with gateway.post(body) as answer:
            assert answer.status == 200
        async with gateway.session.get(gateway.url + "/metrics") as answer:
            assert "the-secret-question" not in await answer.text()
        gateway.app.log.flush()
        assert b"the-secret-question" not in gateway.log.getvalue()
