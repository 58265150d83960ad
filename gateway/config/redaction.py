"""Secret values out of any text, by value. Knows no configuration, no log and no protocol."""

import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

__all__ = ["MASK", "Redactor", "is_credential_header"]

MASK = "***"
_SHORTEST = 4  # a shorter value would blot out ordinary words and numbers, and is no secret
_CREDENTIAL = re.compile(r"auth|cookie|key|token|secret|password|signature", re.IGNORECASE)


def is_credential_header(name: str) -> bool:
    """Whether a header of this name carries a secret."""
    return _CREDENTIAL.search(name) is not None


class Redactor:
    """`redact(text)` is the text with every secret value replaced by a mask that shows no prefix and no suffix.

    A value is also found in its URL-encoded and JSON-escaped form. Where values overlap, the whole stretch goes.
    Values shorter than four characters are left alone.
    """

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values for form in _forms(value) if len(form) >= _SHORTEST}
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        # A lookahead finds the longest value at every position, so that overlapping ones are all seen.
        self._pattern = re.compile(f"(?=({'|'.join(map(re.escape, longest_first))}))") if forms else None

    def __repr__(self) -> str:
        return "Redactor()"

    def __call__(self, text: str) -> str:
        if self._pattern is None:
            return text
        parts: list[str] = []
        start = end = kept = 0  # the stretch to hide, and up to where the text has been dealt with
        for match in self._pattern.finditer(text):
            if match.start() > end or start == end:
                if end > start:
                    parts += (text[kept:start], MASK)
                    kept = end
                start = match.start()
            end = max(end, match.end(1))
        if end > start:
            parts += (text[kept:start], MASK)
            kept = end
        return "".join(parts) + text[kept:]


def _forms(value: str) -> set[str]:
    stripped = value.strip()
    if len(stripped) < _SHORTEST:
        return set()
    escaped = {
        json.dumps(form, ensure_ascii=ascii_only)[1:-1] for form in (value, stripped) for ascii_only in (True, False)
    }
    encoded = {quote(stripped, safe=""), quote_plus(stripped), quote(stripped)} if _encodable(stripped) else set()
    return {value, stripped} | escaped | encoded


def _encodable(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)
