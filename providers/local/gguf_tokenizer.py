"""A `tokenizers.Tokenizer` built from the metadata of a GGUF file.

Owns the kinds of vocabulary that models have there (byte-level BPE with a named pre-tokenizer, SentencePiece's BPE and
unigram pieces with scores, BERT's word pieces) and the special tokens beside them. Knows no cache.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from numpy import ndarray
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from providers.local.gguf_pre_tokenizers import PRE_TOKENIZERS

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


_SPECIAL = ("bos", "eos", "eot", "eom", "unknown", "cls", "seperator")
"""The last one in the format's own spelling."""
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
        "<turn|>",
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
    separator_id: int | None
    adds_bos: bool | None
    adds_eos: bool | None
    adds_separator: bool | None
    adds_space_prefix: bool
    removes_extra_spaces: bool
    charsmap: bytes
    lowercase: bool
    strips_accents: bool
    strips_behind_special: bool


def read_metadata(path: Path) -> dict[str, Any]:
    """The key-value part of a GGUF file. Raises the loader's ModelLoadError for a file that is damaged."""
    from local_engine.loading.gguf import GgufFile  # brings torch, which a tokenizer from the cache does not need

    with GgufFile(path) as file:
        return {key: value.tolist() if isinstance(value, ndarray) else value for key, value in file.metadata.items()}


def read_vocabulary(metadata: Mapping[str, Any]) -> GgufVocabulary:
    """The vocabulary in a GGUF file's metadata. Raises TokenizerError where a key is missing or contradicts another."""
    get = partial(_value, metadata)
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
    ids = {name: _token_id(metadata, name, len(tokens)) for name in _SPECIAL}
    ends = {found for name in ("eos", "eot", "eom") if (found := ids[name]) is not None}
    ends |= {i for i, text in enumerate(tokens) if types[i] == TokenType.CONTROL and text in _END_OF_TURN_TEXTS}
    model = get("model", str, "")
    if model == "llama":
        tokens, types, scores = list(tokens), list(types), list(scores)
        _escape_spaces(tokens, types, scores)
    lowercase = get("normalizer.lowercase", bool, True)
    return GgufVocabulary(
        model=model,
        pre=get("pre", str, "default"),
        tokens=tokens,
        types=types,
        scores=scores,
        merges=merges,
        bos_id=ids["cls"] if ids["bos"] is None else ids["bos"],
        eos_id=ids["eos"],
        eos_ids=frozenset(ends),
        unknown_id=ids["unknown"],
        separator_id=ids["eos"] if ids["seperator"] is None else ids["seperator"],
        adds_bos=get("add_bos_token", bool),
        adds_eos=get("add_eos_token", bool),
        adds_separator=get("add_sep_token", bool),
        adds_space_prefix=get("add_space_prefix", bool, True),
        removes_extra_spaces=get("remove_extra_whitespaces", bool, True),
        charsmap=_charsmap(get("precompiled_charsmap", list, [])),
        lowercase=lowercase,
        strips_accents=get("normalizer.strip_accents", bool, lowercase),
        # Phi-3's tokens swallow the line break behind them; a GGUF has no word for it.
        strips_behind_special=model == "llama" and metadata.get("general.architecture") == "phi3",
    )


def _value(metadata: Mapping[str, Any], name: str, kind: type[_V], default: _V | None = None) -> Any:
    value = metadata.get(f"tokenizer.ggml.{name}", default)
    if value is not None and type(value) is not kind:
        raise TokenizerError(f"tokenizer.ggml.{name} is of type {type(value).__name__}, expected {kind.__name__}")
    return value


def _token_id(metadata: Mapping[str, Any], name: str, num_tokens: int) -> int | None:
    found: int | None = _value(metadata, f"{name}_token_id", int)
    if found is not None and not 0 <= found < num_tokens:
        raise TokenizerError(f"tokenizer.ggml.{name}_token_id is {found}, outside the {num_tokens} tokens")
    return found


def _escape_spaces(tokens: list[str], types: list[int], scores: list[float]) -> None:
    """Makes runs of spaces, which Gemma's files have as pieces of the user, pieces that are merged before all others.

    SentencePiece looks for them after it has escaped the spaces, so a literal escape belongs to a run too.
    """
    for index, text in enumerate(tokens):
        if len(text) > 1 and not text.strip(" "):
            tokens[index], types[index], scores[index] = "▁" * len(text), TokenType.NORMAL, math.inf


def _charsmap(values: list[Any]) -> bytes:
    try:
        return bytes(value & 0xFF for value in values)  # files have them as signed bytes or as unsigned ones
    except TypeError as error:
        raise TokenizerError("tokenizer.ggml.precompiled_charsmap holds something else than bytes") from error


def _check_texts(name: str, texts: list[str]) -> None:
    try:
        "".join(texts).encode()
    except (TypeError, UnicodeEncodeError) as error:
        raise TokenizerError(f"tokenizer.ggml.{name} holds something else than UTF-8 strings") from error


@dataclass(frozen=True, slots=True)
class _Built:
    """A tokenizer without special tokens, and what it adds to a bare prompt where the file does not say."""

    tokenizer: Tokenizer
    adds_bos: bool
    adds_eos: bool = False
    adds_separator: bool = False


def build_tokenizer(vocabulary: GgufVocabulary) -> Tokenizer:
    """The tokenizer. A vocabulary of 50,000 takes about 0.3 s, a SentencePiece one of 250,000 some seconds."""
    builder = _BUILDERS.get(vocabulary.model)
    if builder is None:
        supported = ", ".join(_BUILDERS)
        raise TokenizerError(f"tokenizer.ggml.model {vocabulary.model!r} is not supported (supported: {supported})")
    built = builder(vocabulary)
    tokenizer = built.tokenizer
    _add_special_tokens(tokenizer, vocabulary)
    first = [vocabulary.bos_id] if _either(vocabulary.adds_bos, built.adds_bos) else []
    last = [vocabulary.eos_id] if _either(vocabulary.adds_eos, built.adds_eos) else []
    if not last and _either(vocabulary.adds_separator, built.adds_separator):
        last = [vocabulary.separator_id]
    names = {token_id: vocabulary.tokens[token_id] for token_id in first + last if token_id is not None}
    if names:
        before, after = [names[i] for i in first if i is not None], [names[i] for i in last if i is not None]
        # Two texts that a cross-encoder compares: RoBERTa's kind ends the first one twice, BERT's once.
        twice = [] if vocabulary.model == "bert" else after
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after],
            pair=[*before, "$A", *after, *twice, "$B:1", *(f"{name}:1" for name in after)],
            special_tokens=[(text, token_id) for token_id, text in names.items()],
        )
    return tokenizer


def _either(said: bool | None, default: bool) -> bool:
    return default if said is None else said


def _byte_level(vocabulary: GgufVocabulary) -> _Built:
    kind = PRE_TOKENIZERS.get(vocabulary.pre)
    if kind is None:
        raise TokenizerError(f"tokenizer.ggml.pre {vocabulary.pre!r} is not known (known: {', '.join(PRE_TOKENIZERS)})")
    merges = [_pair(merge) for merge in vocabulary.merges]
    tokenizer = _bpe(vocabulary, merges, ignore_merges=kind.whole_words)
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in kind.patterns]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    return _Built(tokenizer, kind.adds_bos, adds_separator=kind.adds_separator)


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


def _sentence_piece(vocabulary: GgufVocabulary) -> _Built:
    return _pieces(vocabulary, _score_merges(vocabulary))


def _merged_pieces(vocabulary: GgufVocabulary) -> _Built:
    """Gemma 4's: SentencePiece's pieces and spaces, joined by merges that the file lists."""
    return _pieces(vocabulary, [_pair(merge) for merge in vocabulary.merges])


def _pieces(vocabulary: GgufVocabulary, merges: list[tuple[str, str]]) -> _Built:
    unknown = None if vocabulary.unknown_id is None else vocabulary.tokens[vocabulary.unknown_id]
    byte_fallback = TokenType.BYTE in vocabulary.types
    tokenizer = _bpe(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=byte_fallback)
    space: normalizers.Normalizer = normalizers.Replace(" ", "▁")
    if vocabulary.adds_space_prefix:
        space = normalizers.Sequence([normalizers.Prepend("▁"), space])
    tokenizer.normalizer = space
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return _Built(tokenizer, adds_bos=True)


def _unigram(vocabulary: GgufVocabulary) -> _Built:
    """SentencePiece's other model, with its table of character replacements: T5, and XLM-RoBERTa's embedders."""
    pieces = list(zip(vocabulary.tokens, map(float, vocabulary.scores), strict=True))
    byte_fallback = TokenType.BYTE in vocabulary.types
    try:
        tokenizer = Tokenizer(models.Unigram(pieces, vocabulary.unknown_id, byte_fallback))
        steps: list[normalizers.Normalizer] = (
            [normalizers.Precompiled(vocabulary.charsmap)] if vocabulary.charsmap else []
        )
    except Exception as error:  # the library raises nothing more precise
        raise TokenizerError(f"tokenizer.ggml.tokens make no unigram model: {error}") from error
    scheme: Literal["always", "never"] = "always" if vocabulary.adds_space_prefix else "never"
    spaces = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)
    splits = [pre_tokenizers.WhitespaceSplit(), spaces] if vocabulary.removes_extra_spaces else [spaces]
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=scheme)
    return _Built(tokenizer, adds_bos=False, adds_eos=True)


def _word_piece(vocabulary: GgufVocabulary) -> _Built:
    """BERT's. Files mark the pieces that begin a word, where the library marks those that go on with one."""
    ids: dict[str, int] = {}
    for token_id, (text, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True)):
        inside = kind != TokenType.CONTROL and not text.startswith("▁")
        ids.setdefault(f"##{text}" if inside else text.removeprefix("▁"), token_id)
    if vocabulary.unknown_id is None:
        raise TokenizerError("tokenizer.ggml.unknown_token_id is missing")
    unknown = vocabulary.tokens[vocabulary.unknown_id]
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=vocabulary.lowercase, strip_accents=vocabulary.strips_accents
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return _Built(tokenizer, adds_bos=True, adds_separator=True)


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
        strips = vocabulary.strips_behind_special and text not in _KEEPING_SPACE
        if kind in hidden or text in _AROUND_IMAGES:
            special.append(AddedToken(text, special=True, normalized=False, rstrip=strips))
        elif kind == TokenType.USER_DEFINED:
            plain.append(AddedToken(text, special=False, normalized=False, rstrip=strips))
    if plain:
        tokenizer.add_tokens(plain)
    if special:
        tokenizer.add_special_tokens(special)


_KEEPING_SPACE = ("<unk>", "<s>", "<|endoftext|>")
_AROUND_IMAGES = ("<start_of_image>", "<end_of_image>")
"""Which Gemma's files call user-defined, and a client's text may no more contain than a control token."""

_BUILDERS: Mapping[str, Callable[[GgufVocabulary], _Built]] = {
    "gpt2": _byte_level,
    "llama": _sentence_piece,
    "gemma4": _merged_pieces,
    "t5": _unigram,
    "bert": _word_piece,
}
"""By `tokenizer.ggml.model`."""
