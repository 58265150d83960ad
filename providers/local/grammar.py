"""Grammars that an answer has to follow: compiled off the event loop, kept for the next request, bounded in everything.

Owns the compiler of one model, what it has compiled, and the mask that the engine asks before each token. What is wrong
with something that a client wrote is told with its place. Knows no requests and no engine.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from adapters.canonical.errors import InvalidRequest, QueueFull, UnsupportedParameter
from providers.local.grammar_text import Grammar, Written
from providers.local.json_schemas import subschemas
from providers.local.schema_patterns import as_written
from providers.local.string_grammar import StringMask, StringVocabulary
from providers.local.tokenizer import Tokenizer

__all__ = ["GrammarError", "GrammarMask", "Grammars"]

MAX_COMPILED: Final = 64
"""Grammars kept, the last used ones. One that nobody has advanced holds some hundred kB."""
MAX_BYTES: Final = 256 << 10
"""Of one grammar, all schemas in it together."""
COMPILE_S: Final = 10.0
_COMPILERS: Final = 2
_MAX_BLAMED: Final = 500
_UNSUPPORTED: Final = (
    "Unimplemented keys", "Unknown format", "oneOf constraints", "look-around", "lookarounds", "backreferences",
    "only supported",
)  # fmt: skip
"""What llguidance says where it knows what is meant and cannot enforce it."""
_OF_REFERENCES: Final = ("Pointer", "Resource")
# What a thread may spend on one grammar, and a worker of the engine on one mask: fuel is about 50,000 units a ms.
_LIMITS: Final = LLParserLimits(max_lexer_states=50_000, verbose_errors=False)


class GrammarError(Exception):
    """A grammar could not go on: its own bounds were met in the middle of an answer."""


class GrammarMask:
    """What may come next in one answer (`local_engine.generation.TokenMask`). It owns the matcher."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def fill(self, row: npt.NDArray[np.uint32]) -> None:
        self._matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        if self._matcher.is_error():
            raise GrammarError(self._matcher.get_error())

    def accept(self, token_id: int) -> bool:
        if not self._matcher.consume_token(token_id):
            raise GrammarError(self._matcher.get_error())
        return bool(self._matcher.is_stopped())

    def fork(self) -> "GrammarMask":
        return GrammarMask(self._matcher.deep_copy())


class Grammars:
    """The grammars of one model. `vocab_size` is the engine's, `stop_ids` end an answer, and a grammar that is not
    compiled after `compile_s` seconds is refused. As a collection it holds those that are kept."""

    def __init__(
        self, tokenizer: Tokenizer, vocab_size: int, stop_ids: Collection[int], *, compile_s: float = COMPILE_S
    ) -> None:
        self._compile_s = compile_s
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._stop_ids = sorted(token_id for token_id in stop_ids if token_id < vocab_size)
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()
        self._threads = ThreadPoolExecutor(_COMPILERS, thread_name_prefix="grammar")

    def __len__(self) -> int:
        return len(self._compiled)

    def __contains__(self, grammar: Grammar) -> bool:
        return grammar.text in self._compiled

    async def mask(self, grammar: Grammar) -> GrammarMask | StringMask:
        """A mask at the beginning of its answer.

        Raises InvalidRequest or UnsupportedParameter, naming the place in what the client wrote, and QueueFull.
        """
        matcher = self._compiled.get(grammar.text)
        if matcher is None:
            matcher = await self._compile_in_time(grammar)
            self._compiled[grammar.text] = matcher
            if len(self._compiled) > MAX_COMPILED:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(grammar.text)
        own = matcher.deep_copy()
        return StringMask(own, self._string_vocabulary, GrammarError) if grammar.has_strings else GrammarMask(own)

    async def _compile_in_time(self, grammar: Grammar) -> LLMatcher:
        if len(grammar.text) > MAX_BYTES:
            path = max(grammar.written, key=lambda part: len(part.text)).path if grammar.written else "tools"
            raise InvalidRequest.at(path, f"too large; the limit is {MAX_BYTES} bytes")
        job = self._threads.submit(self._compile, grammar)
        try:
            async with asyncio.timeout(self._compile_s):
                return await asyncio.wrap_future(job)
        except TimeoutError:
            if job.cancelled():  # it never began
                raise QueueFull("too many grammars are being compiled", retry_after_s=1.0) from None
            path = grammar.written[0].path if grammar.written else "tools"
            raise InvalidRequest.at(path, f"takes longer than {self._compile_s:g} s to compile") from None

    @cached_property
    def _vocabulary(self) -> LLTokenizer:
        """About 0.5 s for 50,000 tokens (2 cores, 2026-11)."""
        return LLTokenizer(_Vocabulary(self._tokenizer, self._vocab_size, self._stop_ids), eos_token=self._stop_ids)

    @cached_property
    def _string_vocabulary(self) -> StringVocabulary:
        plain = _Vocabulary(self._tokenizer, self._vocab_size, self._stop_ids)
        try:
            return StringVocabulary(plain, self._stop_ids)
        except ValueError as error:
            raise UnsupportedParameter.at("tools", f"no input can be held to a grammar here: {error}") from error

    @cached_property
    def _of_strings(self) -> LLTokenizer:
        """About 1.5 s for 50,000 tokens."""
        return LLTokenizer(self._string_vocabulary, eos_token=self._stop_ids)

    def _compile(self, grammar: Grammar) -> LLMatcher:
        vocabulary = self._of_strings if grammar.has_strings else self._vocabulary
        matcher = LLMatcher(vocabulary, grammar.text, log_level=0, limits=_LIMITS)
        # The first mask costs the most: every answer begins with it, and a grammar beyond the limits fails here.
        matcher.compute_bitmask()
        if matcher.is_error():
            raise self._refusal(grammar, matcher.get_error())
        return matcher

    def _refusal(self, grammar: Grammar, whole: str) -> InvalidRequest:
        """The error for the place in what the client wrote that does not compile even alone."""
        for part in grammar.written:
            reason = self._fault(part.alone)
            if reason:
                return _error(part.path + self._place(part, reason), reason)
        return _error(grammar.written[0].path if grammar.written else "tools", whole)

    def _fault(self, text: str) -> str:
        return str(LLMatcher.validate_grammar(text, self._vocabulary, limits=_LIMITS))

    def _place(self, part: Written, reason: str) -> str:
        """Where inside a schema: the innermost part of it that has the same fault by itself."""
        if not isinstance(part.schema, Mapping):
            return ""
        shared = {name: part.schema[name] for name in ("$defs", "definitions") if name in part.schema}
        found = ""
        for count, (place, inner) in enumerate(subschemas(part.schema)):
            if count == _MAX_BLAMED:
                break
            if not place.startswith((f"{found}.", f"{found}[")):
                continue
            if isinstance(inner, dict):
                if "$ref" in inner and not any(word in reason for word in _OF_REFERENCES):
                    continue  # it would get the blame for what it refers to
                inner = {**shared, **inner}
            if self._fault(part.with_schema(inner)) == reason:
                found = place
        return found


class _Vocabulary(TokenizerWrapper):
    """A model's tokens as llguidance wants them. Ids that the tokenizer lacks have no text, so they never come."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, stop_ids: Collection[int]) -> None:
        known = range(min(tokenizer.vocab_size, vocab_size))
        self.eos_token_id = min(stop_ids)
        self.bos_token_id = tokenizer.bos_id
        # llguidance marks special tokens by this byte, which no text has: a token of it would be taken for one of them.
        texts = [b"" if (raw := tokenizer.token_bytes(token_id)).startswith(b"\xff") else raw for token_id in known]
        self.tokens = texts + [b""] * (vocab_size - len(known))
        self.special_token_ids = [token_id for token_id in known if tokenizer.is_special(token_id)]
        self.is_tokenizer_wrapper = True
        self._encode = tokenizer.encode

    def __call__(self, text: str) -> list[int]:
        return self._encode(text, add_special_tokens=False)


def _error(path: str, reason: str) -> InvalidRequest:
    text = as_written(" ".join(reason.split()))[:300]
    kind = UnsupportedParameter if any(word in reason for word in _UNSUPPORTED) else InvalidRequest
    return kind(f"{path}: {text}", param=path)
