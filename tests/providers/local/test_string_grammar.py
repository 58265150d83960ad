"""Texts inside JSON strings that follow a grammar of their own, token by token, whatever the tokens are cut from."""

import json
import random
import re

import numpy as np
import pytest

from adapters.canonical.errors import UnsupportedParameter
from providers.local.call_grammar import Arguments, json_arguments
from providers.local.custom_tools import InputGrammar
from providers.local.grammar import GrammarMask, Grammars
from providers.local.grammar_text import Grammar, GrammarWriter
from providers.local.string_grammar import StringMask, unescaped
from tests.scripted_engine import EOS_ID, Vocabulary

LINES = 'start: (LINE "\\n")+\nLINE: "\\"" /[^"\\n]{1,4}/ "\\""'
PATTERN = re.compile(r'("[^"\n]{1,4}"\n)+')
PIECES = ["\\n", '\\"', "\\\\", '"}', '{"', '":', ' "', 'a"', "ab", "\\u0041", '\\"\\n', "a\\", "é", "\\t\\t", "}"]


def grammar(definition: str = LINES, syntax: str = "lark") -> Grammar:
    writer = GrammarWriter()
    arguments = Arguments({"type": "object"}, "tools[0]", False, InputGrammar(syntax, definition, "tools[0].format"))
    return writer.finish(json_arguments(writer, arguments))


def grammars(pieces: list[str]) -> tuple[Grammars, Vocabulary]:
    vocabulary = Vocabulary(pieces)
    return Grammars(vocabulary, 512, (EOS_ID,)), vocabulary


def allowed(mask: GrammarMask | StringMask) -> list[int]:
    row = np.zeros(16, np.uint32)
    mask.fill(row)
    return [token for token in range(512) if row[token // 32] >> np.uint32(token % 32) & np.uint32(1)]


def walk(mask: StringMask | GrammarMask, vocabulary: Vocabulary, seed: int, most: int = 60) -> bytes:
    """A random answer: a mask that allows nothing would be a defect."""
    draw = random.Random(seed)
    text = b""
    for length in range(1000):
        choices = allowed(mask)
        assert choices, text
        if length > most:  # come to an end
            ends = [token for token in choices if vocabulary.token_bytes(token)[:1] in (b'"', b"}", b"\\", b"n")]
            choices = ends or choices
        token = draw.choice(choices)
        if token == EOS_ID:
            return text
        text += vocabulary.token_bytes(token)
        if mask.accept(token):
            return text
    raise AssertionError(text)


@pytest.mark.parametrize("pieces", [[], PIECES], ids=["bytes_alone", "pieces"])
async def test_whatever_is_drawn_is_json_whose_text_follows_the_grammar(pieces: list[str]) -> None:
    compiled, vocabulary = grammars(pieces)
    mask = await compiled.mask(grammar())
    for seed in range(60):
        raw = walk(mask.fork(), vocabulary, seed)
        found = json.loads(raw.decode(errors="replace"))
        assert found.keys() == {"input"}
        assert PATTERN.fullmatch(found["input"]), raw


async def test_every_way_to_write_the_text_in_tokens_is_allowed() -> None:
    compiled, vocabulary = grammars(PIECES)
    mask = await compiled.mask(grammar())
    text = json.dumps({"input": '"ab"\n"\\"\n'}).encode()
    ways = (
        ["{", '"', "input", '":', " ", '"', '\\"', "ab", '\\"\\n', '\\"', "\\\\", '\\"', "\\n", '"', "}"],
        list(map(chr, text)),
    )
    for way in ways:
        own = mask.fork()
        assert "".join(way).encode() == text
        for piece in way:
            for token in vocabulary.encode(piece, add_special_tokens=False):
                assert token in allowed(own), (way, piece)
                own.accept(token)


async def test_a_fork_goes_its_own_way() -> None:
    compiled, _ = grammars([])
    first = await compiled.mask(grammar())
    for byte in b'{"input":"\\':
        assert byte in allowed(first)
        first.accept(byte)
    second = first.fork()
    assert allowed(first) == allowed(second) == [ord('"')]
    second.accept(ord('"'))
    assert allowed(first) == [ord('"')]
    assert ord("a") in allowed(second)


async def test_an_expression_is_held_to_as_well() -> None:
    compiled, vocabulary = grammars(PIECES)
    mask = await compiled.mask(grammar(r'[0-9]{2}\n"', "regex"))
    for seed in range(20):
        assert re.fullmatch(r'\d\d\n"', json.loads(walk(mask.fork(), vocabulary, seed))["input"])


async def test_a_vocabulary_without_a_quote_is_refused() -> None:
    class NoQuote(Vocabulary):
        def token_bytes(self, token_id: int) -> bytes:
            return b"" if token_id == ord('"') else super().token_bytes(token_id)

    with pytest.raises(UnsupportedParameter, match="no token for a quote"):
        await Grammars(NoQuote(), 512, (EOS_ID,)).mask(grammar())


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"ab", b"ab"),
        (rb"\n\"\\\/\b", b'\n"\\/\b'),
        ("é\\t".encode(), "é\t".encode()),
        (b'a"', b""),
        (b"\n", b""),
        (b"a\\", b""),
        (rb"\u0041", b""),
        (b"\xff", b"\xff"),
    ],
)
def test_what_bytes_stand_for_inside_a_string(raw: bytes, text: bytes) -> None:
    assert unescaped(raw) == text
