"""Stop strings in a stream of text: nothing of a stop is shown, and nothing that cannot become one is held back.

Owns the text that may still turn into a stop. Knows no tokens; the counters let a caller release what belongs to the
characters (logprobs) together with them.
"""

from collections.abc import Sequence

__all__ = ["StopStrings"]

_ROOT = 0


class StopStrings:
    """Watches one text for `stops`; the same however the text is cut into feeds.

    The stop that is complete first wins, that is the one with the earliest last character; of two that end on the same
    character, the longer. (Of two that start at the same place the shorter is therefore found.) What precedes the stop
    is released, what follows it is dropped, and the stop itself is released only if `include`.

    An Aho-Corasick automaton: its state is the longest end of the text that begins some stop, so each character is
    looked at once, however many stops there are (A. Aho and M. Corasick, CACM 18(6), 1975).
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        if "" in stops:
            raise ValueError("a stop string must not be empty")
        self.hit: str | None = None
        """The stop that was found."""
        self.total = 0
        """Characters fed so far."""
        self.released = 0
        """How many of them were given back. After a hit it stays below `total`, except with `include`."""
        self._include = include
        self._state = _ROOT
        self._held = ""
        self._next, self._depth = _trie(stops)
        self._fail, self._found = _links(self._next, stops)
        self._first_characters = frozenset(stop[0] for stop in stops)

    def is_clear_of(self, text: str) -> bool:
        """Whether nothing of this text, which comes next, can belong to a stop."""
        return self._state == _ROOT and self._first_characters.isdisjoint(text)

    def feed(self, text: str, match: bool = True) -> str:
        """The text that can be shown now. With `match` False (the first min_tokens) a stop that ends in `text` is no
        stop, now or later; one that begins in it and ends after it is.
        """
        if self.hit is not None:
            self.total += len(text)
            return ""
        if self.is_clear_of(text):
            self.total += len(text)
            self.released += len(text)
            return text
        return self._scan(text, match)

    def flush(self) -> str:
        """At the end of the text: what was held back, since no stop can come of it any more."""
        rest, self._held, self._state = self._held, "", _ROOT
        self.released += len(rest)
        return rest

    def _scan(self, text: str, match: bool) -> str:
        pending = self._held + text
        state, position = self._state, len(self._held)
        self.total += len(text)
        for character in text:
            position += 1
            while character not in self._next[state] and state != _ROOT:
                state = self._fail[state]
            state = self._next[state].get(character, _ROOT)
            found = self._found[state]
            if found is not None and match:
                self.hit, self._held = found, ""
                return self._release(pending[: position if self._include else position - len(found)])
        while not self._next[state] and state != _ROOT:  # a whole stop that did not count begins no other
            state = self._fail[state]
        self._state = state
        shown = len(pending) - self._depth[state]
        self._held = pending[shown:]
        return self._release(pending[:shown])

    def _release(self, text: str) -> str:
        self.released += len(text)
        return text


def _trie(stops: Sequence[str]) -> tuple[list[dict[str, int]], list[int]]:
    """Each node's children by character, and its depth. A node is one prefix of a stop; the root is the empty one."""
    children: list[dict[str, int]] = [{}]
    depth = [0]
    for stop in stops:
        node = _ROOT
        for character in stop:
            if character not in children[node]:
                children[node][character] = len(children)
                children.append({})
                depth.append(depth[node] + 1)
            node = children[node][character]
    return children, depth


def _links(children: list[dict[str, int]], stops: Sequence[str]) -> tuple[list[int], list[str | None]]:
    """Each node's longest proper end that is a node too, and the longest stop that ends there."""
    fail = [_ROOT] * len(children)
    found: list[str | None] = [None] * len(children)
    for stop in stops:
        node = _ROOT
        for character in stop:
            node = children[node][character]
        found[node] = stop
    level = [_ROOT]
    while level:
        below = []
        for node in level:
            for character, child in children[node].items():
                link = fail[node]
                while character not in children[link] and link != _ROOT:
                    link = fail[link]
                target = children[link].get(character, _ROOT)
                fail[child] = target if target != child else _ROOT
                if found[child] is None:
                    found[child] = found[fail[child]]
                below.append(child)
        level = below
    return fail, found
