"""Grammars are compiled beside the loop, kept for the next request, and bounded in size, number and time."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.canonical.errors import InvalidRequest, QueueFull
from local_engine.generation import TokenMask
from providers.local.grammar import MAX_BYTES, MAX_COMPILED, GrammarError, Grammars
from providers.local.grammar_text import Grammar, GrammarWriter, literal
from providers.local.tokenizer import load_tokenizer
from tests.cases.tiny_model import write_model
from tests.providers.local.grammars import compiled
from tests.scripted_engine import EOS_ID, Vocabulary


def exactly(text: str) -> Grammar:
    writer = GrammarWriter()
    return writer.finish(literal(text))


def of_schema(schema: Any, path: str = "guided_json") -> Grammar:
    writer = GrammarWriter()
    return writer.finish(writer.schema(schema, path))


class WatchedVocabulary(Vocabulary):
    """Says which threads read it, and lets them read once its gate is open."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.threads: set[threading.Thread] = set()
        self.gate = threading.Event()
        if is_open:
            self.gate.set()
        super().__init__()

    def token_bytes(self, token_id: int) -> bytes:
        self.threads.add(threading.current_thread())
        self.gate.wait()
        return super().token_bytes(token_id)


def allowed(mask: TokenMask, size: int = 512) -> set[int]:
    row = np.zeros(size // 32, np.uint32)
    mask.fill(row)
    return set(np.unpackbits(row.view(np.uint8), bitorder="little").nonzero()[0].tolist())


async def test_a_mask_allows_what_may_come_next_and_ends_when_nothing_may() -> None:
    mask = await compiled().mask(exactly("ab"))
    assert allowed(mask) == {ord("a")}
    assert not mask.accept(ord("a"))
    assert allowed(mask) == {ord("b")}
    assert mask.accept(ord("b"))


async def test_every_token_that_ends_an_answer_may_end_one_that_is_whole() -> None:
    writer = GrammarWriter()
    grammar = writer.finish(writer.regex("a|ab", "p"))
    mask = await Grammars(Vocabulary(), 512, {EOS_ID, 300, 9999}).mask(grammar)
    assert allowed(mask) == {ord("a")}
    assert not mask.accept(ord("a"))
    assert allowed(mask) == {ord("b"), EOS_ID, 300}


async def test_forks_go_their_own_ways() -> None:
    writer = GrammarWriter()
    mask = await compiled().mask(writer.finish(writer.regex("a(b|c)d", "p")))
    assert not mask.accept(ord("a"))
    fork = mask.fork()
    assert not fork.accept(ord("b"))
    assert (allowed(mask), allowed(fork)) == ({ord("b"), ord("c")}, {ord("d")})


async def test_a_token_that_may_not_come_fails_the_mask() -> None:
    mask = await compiled().mask(exactly("ab"))
    with pytest.raises(GrammarError):
        mask.accept(ord("x"))


async def test_tokens_without_text_and_special_ones_never_come() -> None:
    writer = GrammarWriter()
    vocabulary = Vocabulary(["abc"])
    mask = await Grammars(vocabulary, 512, {EOS_ID}).mask(writer.finish(writer.text()))
    found = allowed(mask)
    assert vocabulary.add("abc") in found
    assert EOS_ID in found
    assert not found & {257, *range(260, 512)}


async def test_a_grammar_is_compiled_beside_the_loop_and_kept_as_it_began() -> None:
    vocabulary = WatchedVocabulary()
    grammars = compiled(vocabulary)
    first = await grammars.mask(exactly("ab"))
    assert vocabulary.threads
    assert threading.current_thread() not in vocabulary.threads
    first.accept(ord("a"))
    assert exactly("ab") in grammars
    assert allowed(await grammars.mask(exactly("ab"))) == {ord("a")}


async def test_the_grammars_kept_are_the_last_used_and_no_more_than_the_bound() -> None:
    grammars = compiled()
    for number in range(MAX_COMPILED):
        await grammars.mask(exactly(str(number)))
    await grammars.mask(exactly("0"))
    await grammars.mask(exactly("one more"))
    assert len(grammars) == MAX_COMPILED
    assert exactly("0") in grammars
    assert exactly("1") not in grammars


async def test_a_grammar_beyond_the_bound_is_refused_by_the_name_of_its_largest_part() -> None:
    writer = GrammarWriter()
    both = [writer.schema({"type": "string"}, "small"), writer.schema({"enum": ["x" * MAX_BYTES]}, "large")]
    with pytest.raises(InvalidRequest, match="too large") as caught:
        await compiled().mask(writer.finish(" | ".join(both)))
    assert caught.value.param == "large"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^((a{1,1000}){1,1000}){1,1000}$"},
        {"type": "string", "pattern": "(a|aa)*" * 50},
        {"type": "array", "items": {"type": "string", "maxLength": 10_000}, "minItems": 10_000, "maxItems": 10_000},
        {"type": "object", "properties": {f"p{n}": {"type": "string", "maxLength": n} for n in range(1000)}},
        {"enum": [f"value {n}" for n in range(5000)]},
        {"$defs": {"n": {"anyOf": [{"$ref": "#/$defs/n"}] * 50}}, "$ref": "#/$defs/n"},
    ],
)
async def test_a_costly_schema_is_compiled_in_time_or_refused(schema: Any) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    try:
        mask = await compiled().mask(of_schema(schema))
        allowed(mask)
    except (InvalidRequest, GrammarError):
        pass
    assert loop.time() - begun < 10


async def test_what_takes_too_long_is_refused_and_what_never_began_may_come_again() -> None:
    vocabulary = WatchedVocabulary(is_open=False)
    grammars = Grammars(vocabulary, 512, {EOS_ID}, compile_s=0.05)
    try:
        asked = (grammars.mask(of_schema({"const": number})) for number in range(3))
        found = await asyncio.gather(*asked, return_exceptions=True)
    finally:
        vocabulary.gate.set()
    assert [type(error) for error in found] == [InvalidRequest, InvalidRequest, QueueFull]
    assert "longer than 0.05 s" in str(found[0])


async def test_the_tokenizer_of_a_folder_serves_with_the_vocabulary_of_its_model(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_model(tmp_path / "m"))
    mask = await Grammars(tokenizer, 288, tokenizer.eos_ids).mask(of_schema({"const": "é"}))
    text = json.dumps("é", ensure_ascii=False)
    is_complete = False
    for token_id in tokenizer.encode(text, add_special_tokens=False):
        assert token_id in allowed(mask, 288)
        is_complete = mask.accept(token_id)
    assert is_complete
