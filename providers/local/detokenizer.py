"""Token ids of one growing answer to text, without ever showing half a character.

Owns the bytes of an unfinished character and nothing else. Knows no stop strings and no events.
"""

import codecs
from collections.abc import Sequence

from providers.local.tokenizer import Tokenizer

__all__ = ["Detokenizer"]

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """The text of one sequence. However the ids are cut into feeds, joined feeds and the flush are the same text:
    the tokens' bytes decoded at once.

    Bytes that are no UTF-8 become U+FFFD, as soon as they can't be completed any more; at most 3 bytes wait for the
    rest of their character. A leading space stays: the answer continues a prompt. Special tokens are left out unless
    they are `shown`, or `skip_special_tokens` is False.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, skip_special_tokens: bool = True, shown: frozenset[int] = frozenset()
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._shown = shown
        self._decoder = _Utf8Decoder("replace")

    def feed(self, ids: Sequence[int]) -> str:
        """The text that these ids complete; "" while a character is unfinished."""
        token_bytes, is_special = self._tokenizer.token_bytes, self._tokenizer.is_special
        if self._skip_special_tokens:
            shown = self._shown
            return self._decoder.decode(b"".join([token_bytes(i) for i in ids if not is_special(i) or i in shown]))
        return self._decoder.decode(b"".join([token_bytes(i) for i in ids]))

    @property
    def holds_bytes(self) -> bool:
        """Whether a character is unfinished."""
        return bool(self._decoder.getstate()[0])

    def flush(self) -> str:
        """What is left at the end: one U+FFFD if the last character was cut, else ""."""
        rest = self._decoder.decode(b"", True)
        self._decoder.reset()
        return rest
