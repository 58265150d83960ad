"""The engine in this process: seeds, caches, adapters, beams, damaged files, bad schemas."""

import asyncio
import itertools
import random
import re
import struct
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from local_engine.config import EngineConfig
from local_engine.errors import ModelLoadError
from local_engine.loading.gguf import GgufFile
from local_engine.loading.load import load_model
from providers.local.tokenizer import load_tokenizer
from tests.cases.case import Case
from tests.cases.reply import message_of
from tests.cases.stage import Local, Stage, staged
from tests.cases.tiny_model import write_adapter, write_model
from tests.scripted_engine import Script

__all__ = ["CHECKS"]


def _real(folder: str, **kv_cache: Any) -> Local:
    """The real engine with a tiny model and a small cache."""
    return Local(path=write_model(Path(folder)), provider={"kv_cache": {"memory": 2**20, **kv_cache}})


async def _tokens(stage: Stage, body: dict[str, Any]) -> list[list[int]]:
    """The token ids of each choice, which goes on to the limit."""
    reply = await stage.post({**body, "return_token_ids": True, "ignore_eos": True}, "/v1/completions")
    return [choice["token_ids"] for choice in reply.ok["choices"]]


async def _sd_01(case: Case) -> None:
    seeded = case.body
    others = [
        {name: value for name, value in case.body_with(prompt=prompt, **more).items() if name != "seed"}
        for prompt, more in (("B", {}), ("a longer one", {"temperature": 0}), ("C", {"top_k": 3, "max_tokens": 5}))
    ]
    with TemporaryDirectory() as folder:
        # The cache holds eleven blocks of four tokens, so some of the five are preempted on the way.
        async with staged(case, local=_real(folder, block_size=4, memory=12 * 2**10)) as stage:
            alone = await _tokens(stage, seeded)
            assert len(alone[0]) == 16
            seen = []
            for repeat in range(8):
                bodies = [seeded, *others, {**seeded, "prompt": "Z", "seed": 7}]
                random.Random(repeat).shuffle(bodies)
                answers = await asyncio.gather(*(_tokens(stage, body) for body in bodies))
                seen.append(answers[bodies.index(seeded)])
            assert seen == [alone] * 8
            assert await _tokens(stage, {**seeded, "seed": 43}) != alone


async def _sd_01_choices(case: Case) -> None:
    """Choices of one request differ, repeat, and the first is the lone one."""
    body = case.body_with(n=3)
    with TemporaryDirectory() as folder:
        async with staged(case, local=_real(folder)) as stage:
            first, again, lone = [await _tokens(stage, asked) for asked in (body, body, case.body)]
            assert first == again
            assert first[0] == lone[0]
            assert len({tuple(tokens) for tokens in first}) == 3


async def _pc_01(case: Case) -> None:
    """Two adapters and the base answer each as they do alone, though one prompt's blocks could serve all three.

    Loading other weights under the same name has no route yet; it joins here when it has.
    """
    prompt = "x" * 64
    with TemporaryDirectory() as folder:
        base = write_model(Path(folder) / "base")
        adapters = {name: str(write_adapter(Path(folder) / name, seed=seed)) for name, seed in (("a", 1), ("b", 2))}
        models = ("base:a", "base:b", "base")

        async def answers(asked: Iterable[str]) -> dict[str, Any]:
            local = Local(path=base, settings={"adapters": adapters}, provider={"kv_cache": {"prefix_cache": True}})
            async with staged(case, local=local) as stage:
                return {
                    model: (await stage.post(case.body_with(model=model, prompt=prompt))).ok["choices"][0]["logprobs"]
                    for model in asked
                }

        cold = {model: (await answers([model]))[model] for model in models}
        assert len({str(logprobs) for logprobs in cold.values()}) == 3
        for order in itertools.permutations(models):
            assert await answers(order) == cold


async def _pc_01_warm(case: Case) -> None:
    """With a prefix cache the second answer equals the first, token for token, and says what was cached."""
    body = case.body_with(model="base", prompt="x" * 64)
    with TemporaryDirectory() as folder:
        async with staged(case, local=_real(folder, prefix_cache=True)) as stage:
            cold, warm = (await stage.post(body)).ok, (await stage.post(body)).ok
            assert warm["choices"] == cold["choices"]
            assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
            salted = (await stage.post({**body, "cache_salt": "other"})).ok
            assert salted["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
            assert salted["choices"] == cold["choices"]


async def _bs_01(case: Case) -> None:
    """Beams end at stop strings and at the limit, the best come first, and one beam is the greedy answer."""
    with TemporaryDirectory() as folder:
        async with staged(case, local=_real(folder)) as stage:
            free = [choice["text"] for choice in (await stage.post()).ok["choices"]]
            assert len(free) == 2
            stop = free[0][2:4]
            body = case.body_with(stop=[stop])
            whole = (await stage.post(body)).ok
            texts = [choice["text"] for choice in whole["choices"]]
            assert not any(stop in text for text in texts)
            assert {choice["finish_reason"] for choice in whole["choices"]} <= {"stop", "length"}
            assert whole["usage"]["completion_tokens"] <= 2 * case.body["max_tokens"]
            chunks = [chunk["choices"][0] for chunk in (await stage.post({**body, "stream": True})).chunks]
            assert texts == ["".join(one["text"] for one in chunks if one["index"] == index) for index in range(2)]
            lone = {**case.body, "n": 1, "best_of": 1, "logprobs": 0}
            greedy = {name: value for name, value in lone.items() if name not in ("use_beam_search", "best_of")}
            (beam,), (answer,) = [(await stage.post(each)).ok["choices"] for each in (lone, greedy)]
            assert (beam["text"], beam["finish_reason"]) == (answer["text"], answer["finish_reason"])
            told, expected = beam["logprobs"], answer["logprobs"]
            assert told["tokens"] == expected["tokens"]
            # Beams need the whole distribution, an answer one row's sum: the last bit may differ.
            assert told["token_logprobs"] == pytest.approx(expected["token_logprobs"], abs=1e-5)
            refused = await stage.post({**case.body, "n": 4})
            assert (refused.status, refused.error["param"]) == (400, "best_of")


async def _gd_01(case: Case) -> None:
    local = Local()
    local.says("healthy")
    healthy = {"model": "local/x", "messages": case.body["messages"]}
    gate = asyncio.Event()
    async with staged(case, local=local) as stage:
        local.engine.script(Script(steps=[(local.vocabulary.add("healthy"),)], gate=gate))
        running = asyncio.create_task(stage.post(healthy))
        await local.engine.until(lambda stats: stats.running == 1)
        refused = await stage.post()
        gate.set()
        assert message_of((await running).ok).content == "healthy"
        assert message_of((await stage.post(healthy)).ok).content == "healthy"
        assert refused.status == 400
        assert re.search(r"properties\W{1,2}b\b", refused.error["message"]), refused.error


async def _gd_01_alone(case: Case) -> None:
    """A schema that is none fails its own request at most; nothing of it reaches the engine."""
    local = Local()
    local.says("healthy")
    async with staged(case, local=local) as stage:
        for reply in await stage.both(case.body):
            assert (reply.status, reply.error["type"]) == (400, "invalid_request_error")
            assert reply.error["param"].startswith("response_format")
        assert local.engine.requests == []
        body = {"model": "local/x", "messages": case.body["messages"]}
        assert message_of((await stage.post(body)).ok).content == "healthy"


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def _gguf(
    *,
    tensors: int = 2,
    keys: int | None = None,
    names: tuple[str, str] = ("first.weight", "second.weight"),
    dims: tuple[int, ...] = (32, 4),
    extra: bytes = b"",
) -> bytes:
    """A GGUF v3 with two tensors of float32. What is passed is written as it is, right or wrong."""
    pairs = [
        _text("general.architecture") + struct.pack("<I", 8) + _text("llama"),
        _text("general.name") + struct.pack("<I", 8) + _text("tiny"),
    ]
    if extra:
        pairs.append(extra)
    head = b"GGUF" + struct.pack("<IQQ", 3, tensors, len(pairs) if keys is None else keys) + b"".join(pairs)
    for place, name in enumerate(names):
        shape = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        head += _text(name) + shape + struct.pack("<IQ", 0, place * 512)
    return head + b"\0" * (-len(head) % 32) + b"\1" * 1024


def _write(folder: str, data: bytes) -> Path:
    path = Path(folder) / "tiny.gguf"
    path.write_bytes(data)
    return path


async def _gg_01(case: Case) -> None:
    whole = _gguf()
    cut = whole[:-100]
    with TemporaryDirectory() as folder:
        path = _write(folder, cut)
        local = Local(path=path)
        async with staged(Case(case.id, {"request": _CHAT}), local=local) as stage:
            reply = await stage.post()
            assert (reply.status, reply.error["code"]) == (503, "model_failed")
            for word in ("tiny.gguf", "second.weight", "512", str(len(cut))):
                assert word in reply.error["message"], reply.error
            assert (await stage.get("/healthz")).status == 200
            ready = await stage.get("/readyz")
            assert ready.status == 503
            assert "second.weight" in str(ready.json["reasons"])
        with GgufFile(_write(folder, whole)) as file:
            assert set(file.tensors) == {"first.weight", "second.weight"}


_CHAT = {
    "method": "POST",
    "path": "/v1/chat/completions",
    "body": {"model": "local/x", "messages": [{"role": "user", "content": "hi"}]},
}


async def _gg_01_fuzz(case: Case) -> None:
    """Cut anywhere, or with any of its numbers wrong, a file is refused by one clear line, in no time."""
    whole = _gguf()
    key = _text("general.odd")
    damaged = [whole[:size] for size in range(0, len(whole), 64)]
    damaged += [
        _gguf(tensors=2**60),
        _gguf(keys=2**60),
        _gguf(dims=(1,) * 9),
        _gguf(dims=(2**40, 2**40)),
        _gguf(dims=(0, 4)),
        _gguf(names=("same.weight", "same.weight")),
        _gguf(extra=_text("general.name") + struct.pack("<I", 8) + _text("again")),
        _gguf(extra=key + struct.pack("<IQ", 8, 2**62)),
        _gguf(extra=key + struct.pack("<IIQ", 9, 8, 2**60)),
        _gguf(extra=key + struct.pack("<IIQ", 9, 4, 2**61)),
        _gguf(extra=key + struct.pack("<I", 77)),
        _gguf(extra=_text("general.alignment") + struct.pack("<II", 4, 0)),
        _gguf(extra=_text("general.alignment") + struct.pack("<II", 4, 33)),
    ]
    with TemporaryDirectory() as folder:
        for data in damaged:
            path = _write(folder, data)
            for load in (lambda path=path: load_model(path, EngineConfig()), lambda path=path: load_tokenizer(path)):
                with pytest.raises(ModelLoadError) as raised:
                    load()
                assert str(raised.value).startswith("tiny.gguf: ")
                assert "\n" not in str(raised.value)


CHECKS = {
    "SD-01": _sd_01,
    "SD-01/choices": _sd_01_choices,
    "PC-01": _pc_01,
    "PC-01/warm": _pc_01_warm,
    "BS-01": _bs_01,
    "GD-01": _gd_01,
    "GD-01/alone": _gd_01_alone,
    "GG-01": _gg_01,
    "GG-01/fuzz": _gg_01_fuzz,
}
