"""The text of local models: characters, stop strings, choices, reasoning marks."""

from collections.abc import Iterator

from tests.cases.case import Case
from tests.cases.reply import fold, message_of
from tests.cases.stage import Local, staged
from tests.mock_upstream import Answer
from tests.scripted_engine import Script

__all__ = ["CHECKS"]


def _cuts(text: str) -> Iterator[list[str]]:
    """All ways of two pieces, and one character a piece."""
    yield [text]
    yield list(text)
    for at in range(1, len(text)):
        yield [text[:at], text[at:]]


def _cuts_of_three(text: str) -> Iterator[list[str]]:
    for first in range(1, len(text) - 1):
        for second in range(first + 1, len(text)):
            yield [text[:first], text[first:second], text[second:]]


async def _dt_01(case: Case) -> None:
    pieces = [bytes.fromhex(piece) for piece in case.engine["token_bytes_hex"]]
    text = b"".join(pieces).decode()
    assert text == "ďábel 😊"
    raw = text.encode()
    local = Local()
    async with staged(case, local=local) as stage:
        for cut in [pieces, *([raw[:at], raw[at:]] for at in range(1, len(raw))), [bytes((byte,)) for byte in raw]]:
            local.says(*cut)
            chunks = (await stage.post()).chunks
            deltas = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks]
            assert "".join(deltas) == text
            assert not any("\ufffd" in delta for delta in deltas)
        local.says(b" \xc4", b"\x8f", b"\xf0\x9f")
        streamed, whole = await stage.both(case.body)
        assert fold(streamed.chunks)[0].content == message_of(whole.ok).content == " ď\ufffd"


async def _dt_01_two_choices(case: Case) -> None:
    """Two sequences that are cut inside a character at the same time do not share what is held back."""
    local = Local()
    first, second = "ď😊".encode(), "那🌶".encode()
    local.engine.script(
        Script.pieces(local.vocabulary, [bytes((byte,)) for byte in second]),
        by_seed={3: Script.pieces(local.vocabulary, [bytes((byte,)) for byte in first])},
    )
    async with staged(case, local=local) as stage:
        choices = fold((await stage.post(case.body_with(n=2, seed=3))).chunks)
        assert [choices[index].content for index in (0, 1)] == [first.decode(), second.decode()]


async def _st_01(case: Case) -> None:
    text = "".join(case.engine["pieces"])
    local = Local()
    async with staged(case, local=local) as stage:
        for pieces in [case.engine["pieces"], *_cuts(text), *_cuts_of_three(text)]:
            local.says(*pieces, finish="length")
            choice = fold((await stage.post()).chunks)[0]
            assert (choice.content, choice.finish) == ("Sure.", "stop"), pieces
        for pieces in [case.engine["pieces"], *_cuts(text)]:
            local.says(*pieces, finish="length")
            choice = message_of((await stage.post(case.body_with(stream=False))).ok)
            assert (choice.content, choice.finish) == ("Sure.", "stop"), pieces


async def _st_01_held_text(case: Case) -> None:
    """What only begins like a stop string comes out, at once or at the end; the earliest of several stops wins."""
    local = Local()
    async with staged(case, local=local) as stage:
        local.says("Sure.\nUs", "ed", " it")
        deltas = [chunk["choices"][0]["delta"].get("content") for chunk in (await stage.post()).chunks]
        assert [delta for delta in deltas if delta] == ["Sure.", "\nUsed", " it"]
        local.says("Sure.\nUser")
        choice = fold((await stage.post()).chunks)[0]
        assert (choice.content, choice.finish) == ("Sure.\nUser", "stop")
        for pieces in _cuts("one two three"):
            local.says(*pieces)
            choice = fold((await stage.post(case.body_with(stop=["three", "two", "two t"]))).chunks)[0]
            assert choice.content == "one "


async def _st_01_completions(case: Case) -> None:
    text = "".join(case.engine["pieces"])
    body = {"model": "local/x", "prompt": "Hi", "stop": case.body["stop"]}
    local = Local()
    async with staged(case, local=local) as stage:
        for pieces in [case.engine["pieces"], *_cuts(text)]:
            local.says(*pieces, finish="length")
            streamed, whole = await stage.both(body, "/v1/completions")
            parts = [part for chunk in streamed.chunks for part in chunk["choices"]]
            assert "".join(part["text"] for part in parts) == "Sure."
            assert [part["finish_reason"] for part in parts if part["finish_reason"]] == ["stop"]
            (choice,) = whole.ok["choices"]
            assert (choice["text"], choice["finish_reason"]) == ("Sure.", "stop")


async def _st_01_reasoning(case: Case) -> None:
    """With a reasoning parser on, a stop string ends the visible text as without."""
    local = Local(settings={"reasoning_format": "think"})
    async with staged(case, local=local) as stage:
        for pieces in _cuts("<think>plan</think>Sure.\nUser: more"):
            local.says(*pieces)
            choice = fold((await stage.post()).chunks)[0]
            assert (choice.reasoning, choice.content, choice.finish) == ("plan", "Sure.", "stop")


async def _n1_01(case: Case) -> None:
    local = Local()
    first, second = case.engine["choices"]
    local.engine.script(
        Script.pieces(local.vocabulary, second, finish="length"),
        by_seed={case.body["seed"]: Script.pieces(local.vocabulary, first)},
    )
    async with staged(case, local=local) as stage:
        reply = await stage.post()
        *chunks, last = reply.chunks
        choices = fold(chunks)
        assert {index: choice.content for index, choice in choices.items()} == {0: "ab", 1: "cde"}
        assert {index: choice.finish for index, choice in choices.items()} == {0: "stop", 1: "length"}
        assert all(chunk["usage"] is None for chunk in chunks)
        assert last["choices"] == []
        prompt = len(local.engine.requests[0].prompt)
        assert last["usage"]["prompt_tokens"] == prompt
        assert last["usage"]["completion_tokens"] == 5
        assert last["usage"]["total_tokens"] == prompt + 5
        assert reply.frames.count("[DONE]") == 1
        seeds = [request.sampling.seed for request in local.engine.requests]
        body = {name: value for name, value in case.body.items() if name not in ("stream", "stream_options")}
        whole = (await stage.post(body)).ok
        assert [message_of(whole, index).content for index in (0, 1)] == ["ab", "cde"]
        assert whole["usage"]["completion_tokens"] == 5
        again = [request.sampling.seed for request in local.engine.requests[2:]]
        assert sorted(map(str, seeds)) == sorted(map(str, again))
        assert len(set(seeds)) == 2


async def _n1_01_remote(case: Case) -> None:
    """An upstream that gives one choice is asked once for each."""
    chunk = b'data: {"id": "c", "choices": [{"index": 0, "delta": {"content": "%b"}, "finish_reason": "%b"}]}\n\n'
    usage = b'data: {"id": "c", "choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": %b}}\n\n'
    answers = [
        Answer.sse([chunk % (text, finish), usage % count, b"data: [DONE]\n\n"])
        for text, finish, count in ((b"ab", b"stop", b"2"), (b"cde", b"length", b"3"))
    ]
    async with staged(case.towards("openrouter/x"), *answers) as stage:
        *streamed, last = (await stage.post()).chunks
        choices = fold(streamed)
        assert {choice.content: choice.finish for choice in choices.values()} == {"ab": "stop", "cde": "length"}
        assert sorted(choices) == [0, 1]
        assert last["usage"]["prompt_tokens"] == 4
        assert last["usage"]["completion_tokens"] == 5
        assert len(stage.upstream.requests) == 2
        assert all(stage.sent(number).get("n", 1) == 1 for number in (0, 1))
        assert stage.sent(0)["seed"] != stage.sent(1)["seed"]


async def _rs_01(case: Case) -> None:
    local = Local(settings={"reasoning_format": "think"})
    text = "".join(case.engine["pieces"])
    async with staged(case, local=local) as stage:
        for pieces in [case.engine["pieces"], *_cuts(text)]:
            local.says(*pieces)
            streamed, whole = await stage.both(case.body)
            for choice in (fold(streamed.chunks)[0], message_of(whole.ok)):
                assert (choice.reasoning, choice.content, choice.finish) == ("plan", "done", "stop")
        local.says("a <", " b", ".")
        deltas = [chunk["choices"][0]["delta"].get("content") for chunk in (await stage.post()).chunks]
        assert [delta for delta in deltas if delta][:2] in (["a <", " b"], ["a ", "< b"])
        assert "".join(delta for delta in deltas if delta) == "a < b."


CHECKS = {
    "DT-01": _dt_01,
    "DT-01/two-choices": _dt_01_two_choices,
    "ST-01": _st_01,
    "ST-01/held-text": _st_01_held_text,
    "ST-01/completions": _st_01_completions,
    "ST-01/reasoning": _st_01_reasoning,
    "N1-01": _n1_01,
    "N1-01/remote": _n1_01_remote,
    "RS-01": _rs_01,
}
