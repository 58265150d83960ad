"""What images, speech, transcripts and ranks cost, which tokens do not tell, and that budgets are kept by it."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapters.canonical.rerank import RerankRequest, ScoreRequest
from gateway.usage.units import Units, told_units, told_usage, units_of
from tests.gateway.server.forwarding.test_calls import stage, upload
from tests.gateway.server.two_upstreams import KEY, TwoUpstreams
from tests.mock_upstream import Answer

IMAGES = Answer.json(b'{"created":1,"data":[{"b64_json":"aGk="},{"b64_json":"aGk="}]}')
DURATION = Answer.json(b'{"text":"hello","usage":{"type":"duration","seconds":90}}')
TOKENS = Answer.json(
    b'{"text":"hello","usage":{"type":"tokens","input_tokens":200,"output_tokens":100,"total_tokens":300,'
    b'"input_token_details":{"text_tokens":50,"audio_tokens":150}}}'
)
SPOKEN = Answer(pieces=(b"\x00\x01sound",), headers={"content-type": "audio/mpeg"})


def budgeted(folder: Path, usd: float, row: str) -> str:
    (folder / "prices.yaml").write_text(f"a/m: {row}\n")
    key = f"{{id: k, secret: {KEY}, admin: true, budget: {{usd: {usd}, per: month}}}}"
    return f"auth: {{keys: [{key}]}}\nprices: {{file: {folder}/prices.yaml}}\nstorage: {{url: memory}}\n"


async def post(at: TwoUpstreams, path: str, body: object) -> tuple[int, str | None]:
    """The status, and the code of the error."""
    given: dict[str, Any] = {"data": body} if isinstance(body, aiohttp.FormData) else {"json": body}
    headers = {"Authorization": f"Bearer {KEY}"}
    async with at.session.post(f"{at.url}/v1{path}", headers=headers, **given) as answer:
        raw = await answer.read()
        return answer.status, None if answer.status == 200 else json.loads(raw)["error"]["code"]


async def spent(at: TwoUpstreams) -> float:
    async with at.session.get(f"{at.url}/admin/usage", headers={"Authorization": f"Bearer {KEY}"}) as answer:
        (row,) = json.loads(await answer.read())["data"]
        return float(row["cost_usd"])


async def test_images_are_paid_by_their_number_and_refused_before_they_are_made(tmp_path: Path) -> None:
    async with stage(IMAGES, extra=budgeted(tmp_path, 0.1, "{image: 0.04}")) as at:
        body = {"model": "voice", "prompt": "a cat", "n": 2}
        assert await post(at, "/images/generations", {**body, "n": 3}) == (429, "insufficient_quota")
        assert await post(at, "/images/generations", body) == (200, None)
        assert await spent(at) == pytest.approx(0.08)
        assert await post(at, "/images/generations", {**body, "n": 1}) == (429, "insufficient_quota")
        assert len(at.a.requests) == 1


@pytest.mark.parametrize(
    ("path", "field"), [("/images/generations", "n"), ("/audio/speech", "input"), ("/images/generations", "model")]
)
async def test_a_number_that_is_too_large_is_refused_by_name(path: str, field: str, tmp_path: Path) -> None:
    async with stage(IMAGES, extra=budgeted(tmp_path, 1, "{image: 0.04}")) as at:
        rest = b"" if field == "model" else b'"model":"voice",'
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        body = b'{%b"%b":1e999}' % (rest, field.encode())
        async with at.session.post(f"{at.url}/v1{path}", headers=headers, data=body) as answer:
            assert (answer.status, json.loads(await answer.read())["error"]["param"]) == (400, field)
        assert not at.a.requests


async def test_the_images_that_came_are_paid_and_not_those_that_were_asked_for(tmp_path: Path) -> None:
    async with stage(IMAGES, extra=budgeted(tmp_path, 1, "{image: 0.04}")) as at:
        form = aiohttp.FormData({"model": "voice", "prompt": "x", "n": "2"}, default_to_multipart=True)
        assert await post(at, "/images/edits", form) == (200, None)
        assert await spent(at) == pytest.approx(0.08)


async def test_speech_is_paid_by_its_characters(tmp_path: Path) -> None:
    async with stage(SPOKEN, extra=budgeted(tmp_path, 0.001, "{characters: 15}")) as at:
        body = {"model": "voice", "voice": "alloy", "input": "é" * 40}
        assert await post(at, "/audio/speech", body) == (200, None)
        assert await spent(at) == pytest.approx(40 * 15 / 1e6)
        assert await post(at, "/audio/speech", body) == (429, "insufficient_quota")


@pytest.mark.parametrize(
    ("answer", "row", "cost"),
    [
        (DURATION, "{minute: 0.006}", 0.009),
        (Answer.json(b'{"text":"hi","duration":30.5}'), "{minute: 0.006}", 0.00305),
        (Answer.json(b'{"text":"hi"}'), "{minute: 0.006}", 0.001),  # 160,000 bytes are taken for ten seconds
        (TOKENS, "{input: 3, output: 10}", 0.0016),
    ],
)
async def test_a_transcript_is_paid_by_what_its_answer_tells(
    tmp_path: Path, answer: Answer, row: str, cost: float
) -> None:
    async with stage(answer, extra=budgeted(tmp_path, 1, row)) as at:
        assert await post(at, "/audio/transcriptions", upload("voice", bytes(160_000))) == (200, None)
        assert await spent(at) == pytest.approx(cost, rel=0.01)


async def test_what_failed_costs_nothing_and_gives_back_what_was_reserved(tmp_path: Path) -> None:
    failed = Answer.json(b'{"error":{"message":"no"}}', 400)
    async with stage(failed, IMAGES, extra=budgeted(tmp_path, 0.1, "{image: 0.04}")) as at:
        body = {"model": "voice", "prompt": "a cat", "n": 2}
        assert (await post(at, "/images/generations", body))[0] == 400
        assert await post(at, "/images/generations", body) == (200, None)


async def test_images_whose_client_left_meanwhile_are_paid_as_they_were_asked_for(tmp_path: Path) -> None:
    held = replace(IMAGES, gate=asyncio.Event())
    async with stage(held, IMAGES, extra=budgeted(tmp_path, 0.1, "{image: 0.04}")) as at:
        body = {"model": "voice", "prompt": "a cat", "n": 2}
        asked = asyncio.create_task(post(at, "/images/generations", body))
        await at.a.seen(1)
        asked.cancel()
        await at.a.idle()
        assert await spent(at) == pytest.approx(0.08)
        assert await post(at, "/images/generations", body) == (429, "insufficient_quota")


async def test_what_has_no_price_touches_no_budget(tmp_path: Path) -> None:
    async with stage(IMAGES, extra=budgeted(tmp_path, 0.0001, "{input: 1, output: 1}")) as at:
        for _ in range(2):
            assert await post(at, "/images/generations", {"model": "voice", "prompt": "a cat"}) == (200, None)


async def test_ranks_are_paid_by_searches(tmp_path: Path) -> None:
    ranks = Answer.json(b'{"id":"1","results":[{"index":0,"relevance_score":0.9}],"meta":{}}')
    extra = budgeted(tmp_path, 0.003, "{search: 0.002}")
    async with stage(ranks, kinds=("cohere", "groq"), extra=extra) as at:
        body = {"model": "voice", "query": "q", "documents": ["d"]}
        assert await post(at, "/rerank", body) == (200, None)
        assert await spent(at) == pytest.approx(0.002)
        assert await post(at, "/rerank", body) == (429, "insufficient_quota")


def test_a_search_is_one_query_with_up_to_a_hundred_documents() -> None:
    def ranking(count: int) -> RerankRequest:
        return RerankRequest(model="m", dialect="cohere", query="q", documents=("d",) * count)

    assert [units_of(ranking(count)) for count in (1, 100, 101)] == [Units(searches=n) for n in (1, 1, 2)]
    pairs = ScoreRequest(model="m", dialect="jina", queries=("a", "b", "a"), documents=("d",) * 3)
    assert units_of(pairs) == Units(searches=2)


@pytest.mark.parametrize("answer", [b"no JSON", b"[]", b'{"usage":7,"data":7,"duration":"x"}', b'{"usage":{}}'])
def test_an_answer_that_tells_nothing_of_its_use_is_none_the_worse(answer: bytes) -> None:
    assert told_units(answer) is None
    assert told_usage(answer) is None
