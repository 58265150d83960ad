"""Brings one file from an address of the web, in pieces where its connection breaks. Blocks; call it from a thread.

Knows no cache and no models: model_source.py decides what is fetched and where it is kept.
"""

from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from providers.local.model_download import FetchError, Progress

if TYPE_CHECKING:
    import httpx

__all__ = ["url_download"]

_TRIES: Final = 6
_SILENCE_S: Final = 30.0


def url_download(url: str, path: Path, progress: Progress) -> None:
    """Puts what stands at the address into the file. A connection that breaks is taken up where it broke, where the
    server can tell that it is still the same file. Raises FetchError, without the query of the address."""
    import httpx

    shown = url.partition("?")[0]
    seen: str | None = None
    with httpx.Client(follow_redirects=True, timeout=_SILENCE_S) as client, path.open("wb") as file:
        for left in reversed(range(_TRIES)):
            try:
                with client.stream("GET", url, headers=_asking(file, seen)) as answer:
                    seen = answer.headers.get("etag")
                    if not answer.is_success:
                        raise FetchError(f"{shown} answers with status {answer.status_code}")
                    _write(answer, file, progress)
                return
            except httpx.TransportError as error:
                if not left:
                    why = str(error) or type(error).__name__
                    raise FetchError(f"{shown} is not in the cache and could not be fetched: {why}") from error
            except httpx.HTTPError as error:  # too many redirects, say
                raise FetchError(f"{shown} could not be fetched: {error}") from error


def _asking(file: IO[bytes], seen: str | None) -> dict[str, str]:
    """For what is missing, if the file is still the one that was seen."""
    plain = {"accept-encoding": "identity"}
    if not file.tell() or seen is None or seen.startswith("W/"):
        return plain
    return {**plain, "range": f"bytes={file.tell()}-", "if-range": seen}


def _write(answer: "httpx.Response", file: IO[bytes], progress: Progress) -> None:
    if answer.status_code != 206:  # all of it
        file.seek(0)
        file.truncate()
    done = file.tell()
    length = answer.headers.get("content-length", "")
    total = done + int(length) if length.isdigit() else None
    for chunk in answer.iter_raw():
        file.write(chunk)
        done += len(chunk)
        progress("downloading", done, total)
