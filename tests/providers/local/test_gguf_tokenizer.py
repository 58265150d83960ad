from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from providers.local.gguf_pre_tokenizers import PRE_TOKENIZERS
from providers.local.gguf_tokenizer import TokenizerError, build_tokenizer, read_vocabulary


def byte_level(pre: str, **keys: Any) -> dict[str, Any]:
    """A byte-level vocabulary of the 256 bytes, three merges and one control token."""
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "the", "Ġthe", "<|end|>"]
    metadata = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": [1] * 259 + [3],
        "merges": ["t h", "th e", "Ġ the"],
        "eos_token_id": 259,
        "bos_token_id": 259,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in {**metadata, **keys}.items()}


PIECES = ["▁", "a", "b", "c", "ab", "▁a", "bc", "abc", "▁ab", "▁abc", "ca", "▁b", "é"]
SCORES = [-9.0, -8.0, -8.0, -8.0, -2.0, -1.5, -1.0, -4.0, -3.0, -5.0, -2.5, -6.0, -7.0]


def sentence_piece(**keys: Any) -> dict[str, Any]:
    """A SentencePiece vocabulary: <unk>, <s>, </s>, a user-defined piece, 256 bytes, and PIECES."""
    tokens = ["<unk>", "<s>", "</s>", "<tool>"] + [f"<0x{byte:02X}>" for byte in range(256)] + PIECES
    metadata = {
        "model": "llama",
        "tokens": tokens,
        "token_type": [2, 3, 3, 4] + [6] * 256 + [1] * len(PIECES),
        "scores": [0.0] * 260 + SCORES,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        "add_space_prefix": False,
        "add_bos_token": False,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in {**metadata, **keys}.items()}


def pieces_by_score(text: str) -> list[str]:
    """SentencePiece's own rule: join the best-scored adjacent pair (leftmost of equals) until none is left."""
    scores = dict(zip(PIECES, SCORES, strict=True))
    symbols = list(text.replace(" ", "▁"))
    while True:
        joins = [(-scores[a + b], i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in scores]
        if not joins:
            break
        at = min(joins)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    return [piece for symbol in symbols for piece in _with_bytes(symbol)]


def _with_bytes(symbol: str) -> list[str]:
    return [symbol] if symbol in PIECES else [f"<0x{byte:02X}>" for byte in symbol.encode()]


SENTENCE_PIECE = build_tokenizer(read_vocabulary(sentence_piece()))


@given(st.text(alphabet=" abcéx✓", max_size=20))
def test_scores_choose_the_pieces_that_sentencepiece_chooses(text: str) -> None:
    assert SENTENCE_PIECE.encode(text, add_special_tokens=False).tokens == pieces_by_score(text)


def test_gemma_4_joins_pieces_by_the_merges_of_the_file_whatever_their_scores() -> None:
    merges = ["a b", "▁ ab", "b c"]
    tokenizer = build_tokenizer(read_vocabulary(sentence_piece(model="gemma4", merges=merges)))
    assert tokenizer.encode("abc abc bc\n", add_special_tokens=False).tokens == [
        *("ab", "c", "▁ab", "c", "▁", "bc", "<0x0A>")
    ]
    assert tokenizer.decode(tokenizer.encode("abc abc").ids) == "abc abc"


def test_a_space_goes_before_the_first_word_where_the_file_asks_for_it() -> None:
    tokenizer = build_tokenizer(read_vocabulary(sentence_piece(add_space_prefix=True)))
    assert tokenizer.encode("a", add_special_tokens=False).tokens == ["▁a"]
    assert SENTENCE_PIECE.encode("a", add_special_tokens=False).tokens == ["a"]


def test_special_and_user_defined_pieces_are_found_inside_text() -> None:
    assert SENTENCE_PIECE.encode("a</s>b<tool>", add_special_tokens=False).tokens == ["a", "</s>", "b", "<tool>"]


@pytest.mark.parametrize(
    ("metadata", "tokens"),
    [
        (sentence_piece(add_bos_token=True), ["<s>", "a"]),
        (sentence_piece(add_bos_token=True, add_eos_token=True), ["<s>", "a", "</s>"]),
        (byte_level("llama-bpe"), ["<|end|>", "a"]),
        (byte_level("llama-bpe", add_bos_token=False), ["a"]),
        (byte_level("qwen2"), ["a"]),
        (byte_level("qwen2", add_bos_token=True), ["<|end|>", "a"]),
    ],
)
def test_a_bare_prompt_gets_the_tokens_that_the_file_or_its_kind_asks_for(
    metadata: dict[str, Any], tokens: list[str]
) -> None:
    tokenizer = build_tokenizer(read_vocabulary(metadata))
    assert tokenizer.encode("a").tokens == tokens
    assert tokenizer.encode("a", add_special_tokens=False).tokens == ["a"]


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("gpt-2", "I'll we'LL 12345 x", ["I", "'ll", " we", "'", "LL", " 12345", " x"]),
        ("smollm", "v12 3.5", ["v", "1", "2", " ", "3", ".", "5"]),
        ("llama-bpe", "we'LL 12345\n\nx", ["we", "'LL", " ", "123", "45", "\n\n", "x"]),
        ("qwen2", "we'LL 123", ["we", "'LL", " ", "1", "2", "3"]),
        (
            "deepseek-llm",
            "Hi\n  it's 123!?\u4f60\u597d",
            ["Hi", "\n", " ", " it", "'", "s", " ", "123", "!?", "\u4f60\u597d"],
        ),
        ("deepseek-coder", "x=f(12)\n", ["x", "=", "f", "(", "1", "2", ")", "\n"]),
        ("seed-coder", "we'LL 12\n\nx(\n", ["we", "'LL", " ", "1", "2", "\n\n", "x", "(", "\n"]),
        ("qwen2", "(def  f)", ["(def", " ", " f", ")"]),
        ("gpt-4o", "HelloWorld's 1234 a/\n", ["Hello", "World's", " ", "123", "4", " a", "/\n"]),
        ("tekken", "HelloWorld 12", ["Hello", "World", " ", "1", "2"]),
        ("deepseek-v3", "中文abc 1234", ["中文", "abc", " ", "123", "4"]),
    ],
)
def test_each_pre_tokenizer_splits_as_its_models_were_trained(pre: str, text: str, pieces: list[str]) -> None:
    splitter = build_tokenizer(read_vocabulary(byte_level(pre))).pre_tokenizer
    assert splitter is not None
    split = [text[start:end] for _, (start, end) in splitter.pre_tokenize_str(text)]
    assert split == pieces


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_pre_tokenizer_keeps_the_whole_text(pre: str) -> None:
    text = "The naïve  café\r\n\n\t١٢٣ ½ 你好 のテスト مرحبا हिन्दी 👩‍👩‍👧 a_b-C'd  "
    tokenizer = build_tokenizer(read_vocabulary(byte_level(pre)))
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_every_token_that_ends_a_turn_is_an_end_of_the_answer() -> None:
    tokens = ["a", "b", "<|eot_id|>", "<|im_end|>", "<|im_start|>"]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1, 1, 3, 1, 3],
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.eom_token_id": 1,
    }
    assert read_vocabulary(metadata).eos_ids == {0, 1, 2}


@pytest.mark.parametrize(
    ("metadata", "complaint"),
    [
        ({}, r"tokenizer\.ggml\.tokens is missing"),
        (byte_level("of-tomorrow"), r"tokenizer\.ggml\.pre 'of-tomorrow' is not known"),
        (byte_level("qwen2", model="rwkv"), r"tokenizer\.ggml\.model 'rwkv' is not supported"),
        (byte_level("qwen2", token_type=[1]), r"token_type has 1 entries for 260 tokens"),
        (byte_level("qwen2", eos_token_id=999), r"eos_token_id is 999, outside the 260 tokens"),
        (byte_level("qwen2", merges=["th"]), r"merges has 'th'"),
        (byte_level("qwen2", merges=["q zz"]), r"merges do not fit the tokens"),
        (byte_level("qwen2", tokens=5), r"tokens is of type int, expected list"),
        (byte_level("qwen2", tokens=[1], token_type=[1]), r"tokens holds something else than UTF-8"),
        (byte_level("qwen2", merges=["\udcff b"]), r"merges holds something else than UTF-8"),
    ],
)
def test_metadata_that_makes_no_tokenizer_is_refused_by_key(metadata: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TokenizerError, match=complaint):
        build_tokenizer(read_vocabulary(metadata))
