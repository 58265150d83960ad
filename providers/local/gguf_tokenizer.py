"""A `tokenizers.Tokenizer` built from the metadata of a GGUF file.

Owns the two kinds of vocabulary that decoder models have there (byte-level BPE with a named pre-tokenizer, and
SentencePiece pieces with scores) and the special tokens beside them. Knows no files and no cache.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeVar

from numpy import ndarray
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

__all__ = ["GgufVocabulary", "TokenizerError", "build_tokenizer", "read_metadata", "read_vocabulary"]


_V = TypeVar("_V")


class TokenizerError(Exception):
    """The model's tokenizer cannot be built; the message says which file or key is at fault."""


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type` (GGUF specification)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _SPACES
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _SPACES
_QWEN35 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + _SPACES
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = r"[^\r\n\p{L}\p{N}]?%s*%s+%s|[^\r\n\p{L}\p{N}]?%s+%s*%s"
_GPT4O_WORDS = _CASED % (_UPPER, _LOWER, _CONTRACTIONS + "?", _UPPER, _LOWER, _CONTRACTIONS + "?")
_GPT4O = _GPT4O_WORDS + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _SPACES
_TEKKEN = _CASED % (_UPPER, _LOWER, "", _UPPER, _LOWER, "") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _SPACES
_DEEPSEEK3_WORDS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """Patterns that split the text one after the other, each inside the pieces of the one before it.

    `whole_words` takes a piece that is a token as it stands, without following the merges. `adds_bos` is what holds
    where the file does not say.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    adds_bos: bool = False


_GPT2_KIND = PreTokenizer((_GPT2,))
_DIGITS_GPT2_KIND = PreTokenizer((r"\p{N}", _GPT2))
_LLAMA3_KIND = PreTokenizer((_LLAMA3,), whole_words=True, adds_bos=True)
_QWEN2_KIND = PreTokenizer((_QWEN2,))
_GPT4O_KIND = PreTokenizer((_GPT4O,))
_DEEPSEEK3_KIND = PreTokenizer((r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK3_WORDS + _SPACES))

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    "default": _GPT2_KIND,
    "gpt-2": _GPT2_KIND,
    "phi-2": _GPT2_KIND,
    "olmo": _GPT2_KIND,
    "mpt": _GPT2_KIND,
    "jais": _GPT2_KIND,
    "exaone4": _GPT2_KIND,
    "trillion": _GPT2_KIND,
    "granite-docling": _GPT2_KIND,
    "smollm": _DIGITS_GPT2_KIND,
    "starcoder": _DIGITS_GPT2_KIND,
    "refact": _DIGITS_GPT2_KIND,
    "command-r": _DIGITS_GPT2_KIND,
    "codeshell": _DIGITS_GPT2_KIND,
    "llama-bpe": _LLAMA3_KIND,
    "llama3": _LLAMA3_KIND,
    "llama-v3": _LLAMA3_KIND,
    "falcon3": _LLAMA3_KIND,
    "falcon-h1": _LLAMA3_KIND,
    "pixtral": _LLAMA3_KIND,
    "lfm2": _LLAMA3_KIND,
    "smaug-bpe": PreTokenizer((_LLAMA3,)),
    "dbrx": PreTokenizer((_LLAMA3,)),
    "glm4": PreTokenizer((_LLAMA3,)),
    "chatglm-bpe": PreTokenizer((_LLAMA3,)),
    "qwen2": _QWEN2_KIND,
    "stablelm2": _QWEN2_KIND,
    "megrez": _QWEN2_KIND,
    "hunyuan": _QWEN2_KIND,
    "deepseek-r1-qwen": _QWEN2_KIND,
    "qwen35": PreTokenizer((_QWEN35,)),
    "gpt-4o": _GPT4O_KIND,
    "llama4": _GPT4O_KIND,
    "tekken": PreTokenizer((_TEKKEN,), whole_words=True, adds_bos=True),
    "deepseek-v3": _DEEPSEEK3_KIND,
    "hunyuan-dense": _DEEPSEEK3_KIND,
}
"""By the name in `tokenizer.ggml.pre`. A name that is not here is refused: a wrong split costs quality in silence.

The families are those of llama.cpp's vocabulary loader, the patterns those of the models' tokenizer.json (2026-11).
"""

_END_OF_TURN_TEXTS = frozenset(
    {
        "<|eot_id|>",
        "<|eom_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<end_of_turn>",
        "<|end_of_turn|>",
        "<|return|>",
        "<|call|>",
        "<eos>",
        "</s>",
    }
)
"""Control tokens that end an answer in the families that carry them, though the metadata names only one."""


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """The `tokenizer.ggml.*` keys that a tokenizer is made of. `tokens[id]` is a piece, `types[id]` its TokenType."""

    model: str
    pre: str
    tokens: Sequence[str]
    types: Sequence[int]
    scores: Sequence[float]
    merges: Sequence[str]
    bos_id: int | None
    eos_id: int | None
    eos_ids: frozenset[int]
    unknown_id: int | None
    adds_bos: bool | None
    adds_eos: bool
    adds_space_prefix: bool


def read_metadata(path: Path) -> dict[str, Any]:
    """The key-value part of a GGUF file. Raises the loader's ModelLoadError for a file that is damaged."""
    from local_engine.loading.gguf import GgufFile  # brings torch, which a tokenizer from the cache does not need

    with GgufFile(path) as file:
        return {key: value.tolist() if isinstance(value, ndarray) else value for key, value in file.metadata.items()}


def read_vocabulary(metadata: Mapping[str, Any]) -> GgufVocabulary:
    """The vocabulary in a GGUF file's metadata. Raises TokenizerError where a key is missing or contradicts another."""

    def get(name: str, kind: type[_V], default: _V | None = None) -> Any:
        value = metadata.get(f"tokenizer.ggml.{name}", default)
        if value is not None and type(value) is not kind:
            raise TokenizerError(f"tokenizer.ggml.{name} is of type {type(value).__name__}, expected {kind.__name__}")
        return value

    tokens: list[str] = get("tokens", list)
    if not tokens:
        raise TokenizerError("the file has no tokenizer (tokenizer.ggml.tokens is missing)")
    types: list[int] = get("token_type", list) or [TokenType.NORMAL] * len(tokens)
    scores: list[float] = get("scores", list) or [0.0] * len(tokens)
    merges: list[str] = get("merges", list, [])
    for name, values in (("token_type", types), ("scores", scores)):
        if len(values) != len(tokens):
            raise TokenizerError(f"tokenizer.ggml.{name} has {len(values)} entries for {len(tokens)} tokens")
    for name, texts in (("tokens", tokens), ("merges", merges)):
        _check_texts(name, texts)
    ids = {name: get(f"{name}_token_id", int) for name in ("bos", "eos", "eot", "eom", "unknown")}
    for name, token_id in ids.items():
        if token_id is not None and not 0 <= token_id < len(tokens):
            raise TokenizerError(f"tokenizer.ggml.{name}_token_id is {token_id}, outside the {len(tokens)} tokens")
    ends = {ids[name] for name in ("eos", "eot", "eom") if ids[name] is not None}
    ends |= {i for i, text in enumerate(tokens) if types[i] == TokenType.CONTROL and text in _END_OF_TURN_TEXTS}
    return GgufVocabulary(
        model=get("model", str, ""),
        pre=get("pre", str, "default"),
        tokens=tokens,
        types=types,
        scores=scores,
        merges=merges,
        bos_id=ids["bos"],
        eos_id=ids["eos"],
        eos_ids=frozenset(ends),
        unknown_id=ids["unknown"],
        adds_bos=get("add_bos_token", bool),
        adds_eos=get("add_eos_token", bool, False),
        adds_space_prefix=get("add_space_prefix", bool, True),
    )


def _check_texts(name: str, texts: list[str]) -> None:
    try:
        "".join(texts).encode()
    except (TypeError, UnicodeEncodeError) as error:
        raise TokenizerError(f"tokenizer.ggml.{name} holds something else than UTF-8 strings") from error


def build_tokenizer(vocabulary: GgufVocabulary) -> Tokenizer:
    """The tokenizer. A vocabulary of 50,000 takes about 0.3 s, a SentencePiece one of 250,000 some seconds."""
    match vocabulary.model:
        case "gpt2":
            tokenizer, adds_bos = _byte_level(vocabulary)
        case "llama":
            tokenizer, adds_bos = _sentence_piece(vocabulary), True
        case other:
            raise TokenizerError(f"tokenizer.ggml.model {other!r} is not supported (supported: gpt2, llama)")
    _add_special_tokens(tokenizer, vocabulary)
    if vocabulary.adds_bos is not None:
        adds_bos = vocabulary.adds_bos
    first = [vocabulary.bos_id] if adds_bos and vocabulary.bos_id is not None else []
    last = [vocabulary.eos_id] if vocabulary.adds_eos and vocabulary.eos_id is not None else []
    if first or last:
        names = {token_id: vocabulary.tokens[token_id] for token_id in first + last}
        template = [*(names[i] for i in first), "$A", *(names[i] for i in last)]
        pairs = [(text, token_id) for token_id, text in names.items()]
        tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=pairs)
    return tokenizer


def _byte_level(vocabulary: GgufVocabulary) -> tuple[Tokenizer, bool]:
    kind = PRE_TOKENIZERS.get(vocabulary.pre)
    if kind is None:
        raise TokenizerError(f"tokenizer.ggml.pre {vocabulary.pre!r} is not known (known: {', '.join(PRE_TOKENIZERS)})")
    merges = [_pair(merge) for merge in vocabulary.merges]
    tokenizer = _bpe(vocabulary, merges, ignore_merges=kind.whole_words)
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in kind.patterns]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, kind.adds_bos


def _bpe(vocabulary: GgufVocabulary, merges: list[tuple[str, str]], **settings: Any) -> Tokenizer:
    try:
        return Tokenizer(models.BPE(_ids(vocabulary), merges, **settings))
    except Exception as error:  # the library raises nothing more precise
        raise TokenizerError(f"tokenizer.ggml.merges do not fit the tokens: {error}") from error


def _pair(merge: str) -> tuple[str, str]:
    left, space, right = merge.partition(" ")
    if not (left and space and right):
        raise TokenizerError(f"tokenizer.ggml.merges has {merge!r}, expected two pieces")
    return left, right


def _sentence_piece(vocabulary: GgufVocabulary) -> Tokenizer:
    unknown = None if vocabulary.unknown_id is None else vocabulary.tokens[vocabulary.unknown_id]
    byte_fallback = TokenType.BYTE in vocabulary.types
    merges = _score_merges(vocabulary)
    tokenizer = _bpe(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=byte_fallback)
    space: normalizers.Normalizer = normalizers.Replace(" ", "▁")
    if vocabulary.adds_space_prefix:
        space = normalizers.Sequence([normalizers.Prepend("▁"), space])
    tokenizer.normalizer = space
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _score_merges(vocabulary: GgufVocabulary) -> list[tuple[str, str]]:
    """Merges that make a BPE choose as SentencePiece does.

    SentencePiece joins, among the adjacent pieces whose join is a piece, the pair whose join has the highest score. So
    every split of every piece into two pieces is a merge, ordered by the score of the joined piece.
    """
    ids = _ids(vocabulary)
    ranked: list[tuple[float, int, int, int, tuple[str, str]]] = []
    for token_id, text in enumerate(vocabulary.tokens):
        if vocabulary.types[token_id] not in (TokenType.NORMAL, TokenType.UNUSED):
            continue
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in ids and right in ids:
                ranked.append((-vocabulary.scores[token_id], token_id, ids[left], ids[right], (left, right)))
    ranked.sort(key=lambda entry: entry[:4])
    return [entry[4] for entry in ranked]


def _ids(vocabulary: GgufVocabulary) -> dict[str, int]:
    ids: dict[str, int] = {}
    for token_id, text in enumerate(vocabulary.tokens):
        ids.setdefault(text, token_id)
    return ids


def _add_special_tokens(tokenizer: Tokenizer, vocabulary: GgufVocabulary) -> None:
    """Makes control and user-defined pieces found as they stand in the text, before it is split."""
    hidden = (TokenType.CONTROL, TokenType.UNKNOWN)
    plain, special = [], []
    for text, kind in zip(vocabulary.tokens, vocabulary.types, strict=True):
        if kind in hidden:
            special.append(AddedToken(text, special=True, normalized=False))
        elif kind == TokenType.USER_DEFINED:
            plain.append(AddedToken(text, special=False, normalized=False))
    if plain:
        tokenizer.add_tokens(plain)
    if special:
        tokenizer.add_special_tokens(special)
