"""Messages about files, for readers who may not see where on this machine the files lie."""

import re
from collections.abc import Iterable

__all__ = ["without_folders"]

_QUOTED = re.compile(r"'(?:~|[A-Za-z]:)?[/\\][^']*'")
_STEPS = r"(?:[/\\][^\s/\\'\",;:()]+)"
_PLAIN = re.compile(rf"(?<![\w.:/\\~-])(?:~|[A-Za-z]:)?{_STEPS}+[/\\]?")


def without_folders(text: str, folders: Iterable[str] = ()) -> str:
    """The text with the last name alone of each absolute path. Those in `folders` may hold spaces."""
    text = _QUOTED.sub(lambda found: f"'{_last(found[0].strip(chr(39)))}'", text)
    for folder in sorted(folders, key=len, reverse=True):
        text = re.sub(rf"{re.escape(folder)}{_STEPS}+[/\\]?", lambda found: _last(found[0]), text)
    return _PLAIN.sub(lambda found: _last(found[0]), text)


def _last(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]
