from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from providers.local.detokenizer import Detokenizer


class Pieces:
    """A vocabulary given as bytes; ids of `special` are markers."""

    bos_id = None
    eos_ids: frozenset[int] = frozenset()
    bos_token = eos_token = ""

    def __init__(self, pieces: list[bytes], special: frozenset[int] = frozenset()) -> None:
        self._pieces = pieces
        self._special = special

    @property
    def vocab_size(self) -> int:
        return len(self._pieces)

    def quoted(self, text: str) -> str:
        return text

    def encode(self, text: str, *, add_special_tokens: bool, quoted: bool = False) -> list[int]:
        return [self._pieces.index(bytes([byte])) for byte in text.encode()]

    def token_bytes(self, token_id: int) -> bytes:
        return self._pieces[token_id]

    def tokens_with(self, text: str) -> frozenset[int]:
        return frozenset(index for index, piece in enumerate(self._pieces) if text.encode() in piece)

    def is_special(self, token_id: int) -> bool:
        return token_id in self._special


PIECES = [
    b"a",
    b" the",
    b"\xc4",
    b"\x8f",
    b"\xc3\xa1bel",
    b" \xf0\x9f",
    b"\x98\x8a",
    b"\xe2\x82",
    b"\xff",
    b"<end>",
    b"",
]
VOCABULARY = Pieces(PIECES, special=frozenset({9}))


@given(
    ids=st.lists(st.integers(0, len(PIECES) - 1), max_size=20),
    lengths=st.lists(st.integers(0, 3), max_size=20),
    skip=st.booleans(),
)
def test_joined_feeds_are_the_text_decoded_at_once_for_every_cut(
    ids: list[int], lengths: list[int], skip: bool
) -> None:
    detokenizer = Detokenizer(VOCABULARY, skip_special_tokens=skip)
    ends = [*accumulate(lengths), len(ids)]
    feeds = [detokenizer.feed(ids[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
    shown = [PIECES[i] for i in ids if not (skip and i == 9)]
    assert "".join(feeds) + detokenizer.flush() == b"".join(shown).decode(errors="replace")


@given(text=st.text(max_size=30))
def test_no_replacement_character_is_shown_for_a_character_that_completes(text: str) -> None:
    single_bytes = Pieces([bytes([byte]) for byte in range(256)])
    detokenizer = Detokenizer(single_bytes)
    shown, fed = "", b""
    for token_id in single_bytes.encode(text, add_special_tokens=False):
        shown += detokenizer.feed([token_id])
        fed += bytes([token_id])
        assert text.startswith(shown)
        assert len(fed) - len(shown.encode()) <= 3
    assert shown == text
    assert detokenizer.flush() == ""


def test_a_cut_character_at_the_end_is_one_replacement_character() -> None:
    detokenizer = Detokenizer(VOCABULARY)
    assert detokenizer.feed([0, 5]) == "a "
    assert (detokenizer.holds_bytes, detokenizer.flush(), detokenizer.holds_bytes) == (True, "\ufffd", False)
    assert detokenizer.flush() == ""


def test_two_sequences_share_no_state() -> None:
    first, second = Detokenizer(VOCABULARY), Detokenizer(VOCABULARY)
    assert first.feed([2]) == ""
    assert second.feed([0]) == "a"
    assert first.feed([3]) == "ď"


def test_the_leading_space_of_the_first_word_stays() -> None:
    assert Detokenizer(VOCABULARY).feed([1]) == " the"


def test_special_tokens_are_hidden_unless_asked_for() -> None:
    assert Detokenizer(VOCABULARY).feed([0, 9]) == "a"
    assert Detokenizer(VOCABULARY, skip_special_tokens=False).feed([0, 9]) == "a<end>"


def test_a_hidden_token_does_not_cut_a_character() -> None:
    assert Detokenizer(VOCABULARY).feed([2, 9, 3]) == "ď"
