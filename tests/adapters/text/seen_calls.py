"""What a parser of calls finds in a text."""

from collections.abc import Sequence

from adapters.text.tool_calls import CallArguments, CallFinished, CallStarted, TextPiece, ToolCallParser

__all__ = ["Seen", "seen_by"]

Seen = list[str | tuple[str, str]]
"""Texts and calls (name, arguments) in their order."""


def seen_by(parser: ToolCallParser, pieces: Sequence[str], *, is_cut: bool = False) -> Seen:
    """What is found, with neighbours joined. Checks what holds for every text: places, ids, begin and end of calls."""
    result: Seen = []
    text, behind = "".join(pieces), 0
    ids: set[str] = set()
    arguments: list[str] | None = None
    name = ""
    parts = [part for piece in pieces for part in parser.feed(piece)]
    for part in [*parts, *parser.flush(is_cut=is_cut)]:
        match part:
            case TextPiece():
                assert arguments is None
                assert part.text
                assert part.start >= behind
                assert text[part.start : part.start + len(part.text)] == part.text
                behind = part.start + len(part.text)
                if result and isinstance(result[-1], str):
                    result[-1] += part.text
                else:
                    result.append(part.text)
            case CallStarted():
                assert arguments is None
                assert part.id not in ids
                ids.add(part.id)
                name, arguments = part.name, []
            case CallArguments():
                assert arguments is not None
                arguments.append(part.text)
            case CallFinished():
                assert arguments is not None
                result.append((name, "".join(arguments)))
                arguments = None
    assert arguments is None
    return result
