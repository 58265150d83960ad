"""Recorded answers of upstreams, of every dialect: the events that they are, and what the client gets."""

import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import pytest
from msgspec.structs import replace

from adapters.canonical.errors import GatewayError
from adapters.canonical.events import Event, Started
from adapters.canonical.result import fold
from adapters.openai.quirks import Quirks
from providers.remote.vendors import VENDORS
from tests.adapters.anthropic.exchange import Exchange as AnthropicExchange
from tests.adapters.bedrock.exchange import Exchange as BedrockExchange
from tests.adapters.cohere.exchange import Exchange as CohereExchange
from tests.adapters.gemini.exchange import Exchange as GeminiExchange
from tests.adapters.golden_case import GoldenCase, described, golden_cases
from tests.adapters.ollama.exchange import Exchange as OllamaExchange
from tests.adapters.openai.exchange import Exchange as OpenAIExchange
from tests.adapters.openai.responses.exchange import Exchange as ResponsesExchange
from tests.adapters.sides import Sides
from tests.adapters.vendor_exchange import VendorExchange

EXCHANGES: dict[str, Callable[[bytes], Sides]] = {
    "anthropic": AnthropicExchange,
    "bedrock": BedrockExchange,
    "cohere": CohereExchange,
    "gemini": GeminiExchange,
    "ollama": OllamaExchange,
    "openai": OpenAIExchange,
    "openai_responses": ResponsesExchange,
}
VENDOR_CASES = golden_cases("vendors")
"""A folder for each OpenAI-shaped vendor, of its name, which shows its quirks."""
CASES = [case for dialect in EXCHANGES for case in golden_cases(dialect)] + VENDOR_CASES
STREAMS = [case for case in CASES if case.stream is not None]
BODIES = [case for case in CASES if case.body is not None]
BOTH = [case for case in STREAMS if case.body is not None]
CUT_STEP = 257


def named(cases: list[GoldenCase]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.id for case in cases])


def exchange_of(case: GoldenCase) -> Sides:
    if case in VENDOR_CASES:
        return VendorExchange(VENDORS[case.name].quirks, case.request)
    return EXCHANGES[case.dialect](case.request)


def read(case: GoldenCase, *pieces: bytes) -> tuple[list[Event], GatewayError | None]:
    return exchange_of(case).read_stream(*pieces)


@cache
def whole(case_id: str) -> tuple[list[Event], GatewayError | None]:
    case = next(case for case in STREAMS if case.id == case_id)
    assert case.stream is not None
    return read(case, case.stream)


@named(CASES)
def test_an_upstreams_answer_becomes_the_expected_events(case: GoldenCase, update_golden: bool) -> None:
    exchange = exchange_of(case)
    if case.stream is not None:
        found = described(*exchange.read_stream(case.stream))
    elif case.body is not None:
        found = described(*exchange.read_body(case.body))
    else:
        found = described([], refusal(case))
    case.check("events.json", found, update=update_golden)


def refusal(case: GoldenCase) -> GatewayError:
    assert case.refusal is not None
    recorded = json.loads(case.refusal)
    return exchange_of(case).upstream.parse_error(recorded["status"], json.dumps(recorded["body"]).encode())


@named(CASES)
def test_the_client_gets_the_expected_bytes(case: GoldenCase, update_golden: bool) -> None:
    exchange = exchange_of(case)
    if case.stream is not None:
        case.check("client.sse", exchange.stream(*exchange.read_stream(case.stream)), update=update_golden)
    if case.body is not None:
        events, error = exchange_of(case).read_body(case.body)
        answer = exchange.answer(events) if error is None else exchange.front.render_error(error)
        case.check("client.json", answer + b"\n", update=update_golden)
    if case.refusal is not None:
        case.check("client.json", exchange.front.render_error(refusal(case)) + b"\n", update=update_golden)


@named(STREAMS)
def test_a_stream_may_be_cut_at_every_byte(case: GoldenCase) -> None:
    """Each reading cuts at every `CUT_STEP`-th byte, the next one a byte further on; a long stream has so many."""
    expected = whole(case.id)
    assert case.stream is not None
    exchange, size = exchange_of(case), len(case.stream)
    for first in range(1, min(CUT_STEP + 1, size)):
        ends = [0, *range(first, size, CUT_STEP), size]
        events, error = exchange.read_stream(*[case.stream[start:end] for start, end in pairwise(ends)])
        assert events == expected[0], first
        assert str(error) == str(expected[1]), first


@named(STREAMS)
def test_a_stream_may_come_byte_by_byte(case: GoldenCase) -> None:
    assert case.stream is not None
    events, error = read(case, *[case.stream[i : i + 1] for i in range(len(case.stream))])
    assert (events, str(error)) == (whole(case.id)[0], str(whole(case.id)[1]))


@named(STREAMS)
def test_a_stream_cut_short_never_ends_well_before_its_finish(case: GoldenCase) -> None:
    """Law 3: whatever byte a clean close comes at, the answer is whole or an error."""
    assert case.stream is not None
    finishes = sum(type(event).__name__ == "ChoiceFinished" for event in whole(case.id)[0])
    exchange = exchange_of(case)
    for offset in range(0, len(case.stream), 7):
        events, error = exchange.read_stream(case.stream[:offset])
        if error is None:
            assert sum(type(event).__name__ == "ChoiceFinished" for event in events) == finishes


@named(BOTH)
def test_the_fold_of_the_stream_is_the_fold_of_the_body(case: GoldenCase) -> None:
    assert case.body is not None
    streamed, error = whole(case.id)
    assert error is None
    body, error = exchange_of(case).read_body(case.body)
    assert error is None
    assert fold(streamed) == fold(body)


@named(BOTH)
def test_frames_do_not_depend_on_how_events_are_batched(case: GoldenCase) -> None:
    events, _ = whole(case.id)
    exchange = exchange_of(case)
    renderer = exchange.renderer()
    one_by_one = b"".join([renderer.feed([event]) for event in events]) + renderer.finish()
    assert one_by_one == exchange.stream(events)


@named(STREAMS)
def test_a_stream_starts_once_and_first(case: GoldenCase) -> None:
    events, _ = whole(case.id)
    assert [i for i, event in enumerate(events) if isinstance(event, Started)] == ([0] if events else [])


def test_every_vendor_has_a_folder() -> None:
    assert all(case.shows_what_is_sent for case in VENDOR_CASES)
    assert {case.name for case in VENDOR_CASES} == {name for name, row in VENDORS.items() if "messages" in row.fields}


@named([case for case in CASES if case.shows_what_is_sent])
def test_the_upstream_gets_the_expected_body(case: GoldenCase, update_golden: bool) -> None:
    case.check(
        "sent.json", exchange_of(case).upstream.render_request(exchange_of(case).request) + b"\n", update=update_golden
    )


def quirks_of(name: str) -> list[tuple[str, Quirks]]:
    """Each quirk of a row by its name, and the row without it."""
    quirks, plain = VENDORS[name].quirks, Quirks()
    found = [
        (field, replace(quirks, **{field: getattr(plain, field)}))
        for field in quirks.__struct_fields__
        if field != "names" and getattr(quirks, field) != getattr(plain, field)
    ]
    for field in quirks.names:
        rest = {key: word for key, word in quirks.names.items() if key != field}
        found.append((field, replace(quirks, names=rest)))
    return found


@pytest.mark.parametrize(
    ("case", "quirk", "without"),
    [
        pytest.param(case, quirk, without, id=f"{case.name}-{quirk}")
        for case in VENDOR_CASES
        for quirk, without in quirks_of(case.name)
    ],
)
def test_a_vendors_folder_shows_each_of_its_quirks(case: GoldenCase, quirk: str, without: Quirks) -> None:
    """Without the quirk the vendor would get another body, or its answer would read otherwise."""
    assert case.stream is not None
    row, other = exchange_of(case), VendorExchange(without, case.request)
    sent = [each.upstream.render_request(each.request) for each in (row, other)]
    read_as = [each.read_stream(case.stream)[0] for each in (row, other)]
    assert sent[0] != sent[1] or read_as[0] != read_as[1], quirk
