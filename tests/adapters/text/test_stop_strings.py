from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.text.stop_strings import StopStrings


def reference(text: str, stops: list[str], *, include: bool = False, unmatched: int = 0) -> tuple[str, str | None]:
    """The rule at once: the first position after `unmatched` characters where a stop ends; the longest of those."""
    for end in range(unmatched + 1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


def cut(text: str, lengths: list[int]) -> list[str]:
    ends = [*accumulate(lengths), len(text)]
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


WORDS = st.text(alphabet="ab\n", max_size=24)
STOPS = st.lists(st.text(alphabet="ab\n", min_size=1, max_size=4), max_size=4)
CUTS = st.lists(st.integers(0, 4), max_size=12)


@given(text=WORDS, stops=STOPS, cuts=CUTS, include=st.booleans())
@example(text="abc", stops=["abcd", "bc"], cuts=[1, 1], include=False)
def test_every_cut_gives_what_the_rule_gives_at_once(
    text: str, stops: list[str], cuts: list[int], include: bool
) -> None:
    matcher = StopStrings(stops, include=include)
    shown = "".join([matcher.feed(piece) for piece in cut(text, cuts)]) + matcher.flush()
    assert (shown, matcher.hit) == reference(text, stops, include=include)


@given(first=WORDS, rest=WORDS, stops=STOPS, cuts=CUTS)
def test_a_stop_wholly_inside_the_first_tokens_is_never_matched(
    first: str, rest: str, stops: list[str], cuts: list[int]
) -> None:
    matcher = StopStrings(stops)
    shown = "".join([matcher.feed(piece, match=False) for piece in cut(first, cuts)])
    shown += "".join([matcher.feed(piece) for piece in cut(rest, cuts)]) + matcher.flush()
    assert (shown, matcher.hit) == reference(first + rest, stops, unmatched=len(first))


@given(text=WORDS, stops=STOPS, cuts=CUTS)
def test_only_the_longest_end_that_begins_a_stop_is_held_back(text: str, stops: list[str], cuts: list[int]) -> None:
    matcher = StopStrings(stops)
    fed, shown = "", ""
    for piece in cut(text, cuts):
        fed += piece
        shown += matcher.feed(piece)
        if matcher.hit is not None:
            break
        begun = [n for n in range(len(fed) + 1) if any(s.startswith(fed[len(fed) - n :]) and n < len(s) for s in stops)]
        assert len(fed) - len(shown) == max(begun, default=0)
        assert (matcher.released, matcher.total) == (len(shown), len(fed))


def test_a_stop_over_many_pieces_is_never_shown() -> None:
    matcher = StopStrings(["\nUser:"])
    assert [matcher.feed(piece) for piece in ["Sure.", "\nUs", "er", ":", " more"]] == ["Sure.", "", "", "", ""]
    assert matcher.flush() == ""
    assert matcher.hit == "\nUser:"
    assert (matcher.released, matcher.total) == (5, 16)


def test_text_that_only_looked_like_a_stop_is_released_when_it_no_longer_can_be_one() -> None:
    matcher = StopStrings(["\nUser:"])
    assert [matcher.feed(piece) for piece in ["a\n", "Use", "ful"]] == ["a", "", "\nUseful"]


def test_held_text_comes_out_at_the_end() -> None:
    matcher = StopStrings(["END"])
    assert matcher.feed("the EN") == "the "
    assert (matcher.flush(), matcher.flush()) == ("EN", "")
    assert matcher.hit is None
    assert matcher.released == matcher.total == 6


def test_an_included_stop_is_shown_whole_and_nothing_after_it() -> None:
    matcher = StopStrings(["</a>"], include=True)
    assert [matcher.feed(piece) for piece in ["x</", "a>y", "z"]] == ["x", "</a>", ""]


def test_the_shorter_of_two_stops_that_start_together_is_found() -> None:
    matcher = StopStrings(["abcd", "ab"])
    assert matcher.feed("xabcd") == "x"
    assert matcher.hit == "ab"


def test_without_stops_all_text_passes() -> None:
    matcher = StopStrings([])
    assert matcher.feed("anything") == "anything"
    assert matcher.flush() == ""


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        StopStrings(["a", ""])
