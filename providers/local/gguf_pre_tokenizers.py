"""How byte-level vocabularies split a text before the merges, by the name that a GGUF has in `tokenizer.ggml.pre`.

A name that is not here is refused: a wrong split costs quality in silence. The families are those of llama.cpp's
vocabulary loader, the patterns those of the models' tokenizer.json (2026-11).
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["PRE_TOKENIZERS", "PreTokenizer"]

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _SPACES
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _SPACES
_QWEN35 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + _SPACES
_SEED = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+" + _SPACES
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = r"[^\r\n\p{L}\p{N}]?%s*%s+%s|[^\r\n\p{L}\p{N}]?%s+%s*%s"
_GPT4O_WORDS = _CASED % (_UPPER, _LOWER, _CONTRACTIONS + "?", _UPPER, _LOWER, _CONTRACTIONS + "?")
_GPT4O = _GPT4O_WORDS + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _SPACES
_TEKKEN = _CASED % (_UPPER, _LOWER, "", _UPPER, _LOWER, "") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _SPACES
_DEEPSEEK3_WORDS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
)
# Cased letters, but for these of Armenian, Georgian, Cyrillic, Latin, Garay and mathematics.
_UNCASED = (
    "\u0560-\u0588\u10c7-\u10ff\u1c80-\u1c8a\u2d00-\u2d2d\ua790-\ua7fa\uab30-\uab68"
    "\U00010570-\U000105bc\U00010d50-\U00010d85\U00016e40-\U00016e7f\U0001d400-\U0001d7cb\U0001df00-\U0001df1e"
)
_DEEPSEEK_WORDS = rf"\s?(?:(?![{_UNCASED}])[\p{{Lu}}\p{{Ll}}\p{{Lt}}])+"
_DEEPSEEK_SIGNS = r"\s?[!-/:-~" + "\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """Patterns that split the text one after the other, each inside the pieces of the one before it.

    `whole_words` takes a piece that is a token as it stands, without following the merges. `adds_bos` and
    `adds_separator` are what holds where the file does not say.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    adds_bos: bool = False
    adds_separator: bool = False


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
    "gigachat": _GPT2_KIND,
    "a.x-4.0": _GPT2_KIND,
    "mellum": _GPT2_KIND,
    "roberta-bpe": PreTokenizer((_GPT2,), adds_separator=True),
    "smollm": _DIGITS_GPT2_KIND,
    "starcoder": _DIGITS_GPT2_KIND,
    "refact": _DIGITS_GPT2_KIND,
    "command-r": _DIGITS_GPT2_KIND,
    "codeshell": _DIGITS_GPT2_KIND,
    "exaone": _DIGITS_GPT2_KIND,
    "minerva-7b": _DIGITS_GPT2_KIND,
    "mellum2": _DIGITS_GPT2_KIND,
    "llama-bpe": _LLAMA3_KIND,
    "llama3": _LLAMA3_KIND,
    "llama-v3": _LLAMA3_KIND,
    "falcon3": _LLAMA3_KIND,
    "falcon-h1": _LLAMA3_KIND,
    "pixtral": _LLAMA3_KIND,
    "lfm2": _LLAMA3_KIND,
    "midm-2.0": _LLAMA3_KIND,
    "jina-v5-nano": _LLAMA3_KIND,
    "smaug-bpe": PreTokenizer((_LLAMA3,)),
    "dbrx": PreTokenizer((_LLAMA3,)),
    "glm4": PreTokenizer((_LLAMA3,), whole_words=True),
    "chatglm-bpe": PreTokenizer((_LLAMA3,)),
    "qwen2": _QWEN2_KIND,
    "stablelm2": _QWEN2_KIND,
    "megrez": _QWEN2_KIND,
    "hunyuan": _QWEN2_KIND,
    "deepseek-r1-qwen": _QWEN2_KIND,
    "kormo": _QWEN2_KIND,
    "f2llmv2": _QWEN2_KIND,
    "solar-open": _QWEN2_KIND,
    "grok-2": _QWEN2_KIND,
    "seed-coder": PreTokenizer((_SEED,)),
    "qwen35": PreTokenizer((_QWEN35,)),
    "gpt-4o": _GPT4O_KIND,
    "llama4": _GPT4O_KIND,
    "kanana2": _GPT4O_KIND,
    "talkie": _GPT4O_KIND,
    "minimax-m2": _GPT4O_KIND,
    "tekken": PreTokenizer((_TEKKEN,), whole_words=True, adds_bos=True),
    "deepseek-llm": PreTokenizer((r"[\r\n]", _DEEPSEEK_WORDS, _DEEPSEEK_SIGNS, r"\s+$", _CJK, r"\p{N}+")),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")),
    "deepseek-v3": _DEEPSEEK3_KIND,
    "hunyuan-dense": _DEEPSEEK3_KIND,
    "joyai-llm": _DEEPSEEK3_KIND,
}
