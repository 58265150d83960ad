"""A model's file from an address: whole or not at all, taken up where the connection broke, checked where it can be."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from providers.local.model_source import FetchError, UrlModel, cached, fetch, resolve
from providers.local.url_download import url_download

FILE = b"GGUF\x03\x00\x00\x00" + bytes(range(256)) * 40
CHECKSUM = hashlib.sha256(FILE).hexdigest()


class Host:
    """What it answers. `breaks_at`: after so many bytes, for each of the first answers."""

    def __init__(self) -> None:
        self.breaks_at: list[int] = []
        self.etags: list[str] = []
        self.asked: list[tuple[str, str | None]] = []
        self.url = ""


@contextmanager
def hosting(host: Host) -> Iterator[Host]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

        def do_GET(self) -> None:
            wanted = self.headers.get("range")
            host.asked.append((self.path, wanted))
            if self.path.startswith("/moved/"):
                self.send_response(302)
                self.send_header("location", self.path.removeprefix("/moved"))
                self.end_headers()
                return
            if not self.path.startswith("/tiny.gguf"):
                self.send_error(404)
                return
            etag = host.etags.pop(0) if host.etags else '"1"'
            start = int(wanted[6:-1]) if wanted and self.headers.get("if-range") == etag else 0
            self.send_response(206 if start else 200)
            self.send_header("etag", etag)
            self.send_header("content-length", str(len(FILE) - start))
            self.end_headers()
            stop = host.breaks_at.pop(0) if host.breaks_at else len(FILE)
            self.wfile.write(FILE[start:stop])

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    host.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield host
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def host() -> Iterator[Host]:
    with hosting(Host()) as serving:
        yield serving


def test_a_file_is_fetched_checked_and_then_read_without_the_network(host: Host, tmp_path: Path) -> None:
    source = f"{host.url}/moved/tiny.gguf?token=secret#sha256={CHECKSUM}"
    steps: list[tuple[str, int, int | None]] = []
    assert cached(source, folder=tmp_path) is None
    path = fetch(source, folder=tmp_path, progress=lambda *step: steps.append(step))
    assert (path.name, path.read_bytes()) == ("tiny.gguf", FILE)
    assert "secret" not in str(path)
    assert ("downloading", len(FILE), len(FILE)) in steps
    assert steps[-1] == ("verifying", len(FILE), len(FILE))
    assert [asked for asked, _ in host.asked] == ["/moved/tiny.gguf?token=secret", "/tiny.gguf?token=secret"]
    assert fetch(source.replace("secret", "another"), folder=tmp_path) == path
    assert len(host.asked) == 2


def test_another_file_than_the_checksum_says_is_not_kept(host: Host, tmp_path: Path) -> None:
    source = f"{host.url}/tiny.gguf#sha256={'0' * 64}"
    with pytest.raises(FetchError, match=f"has SHA-256 {CHECKSUM}, expected 0000"):
        fetch(source, folder=tmp_path)
    assert cached(source, folder=tmp_path) is None


def test_a_connection_that_breaks_is_taken_up_where_it_broke(host: Host, tmp_path: Path) -> None:
    host.breaks_at = [1000, 4000]
    path = tmp_path / "tiny.gguf"
    url_download(f"{host.url}/tiny.gguf", path, lambda *step: None)
    assert path.read_bytes() == FILE
    assert [wanted for _, wanted in host.asked] == [None, "bytes=1000-", "bytes=4000-"]


@pytest.mark.parametrize("etags", [['"1"', '"2"', '"2"'], ['W/"1"', 'W/"1"']])
def test_what_may_be_another_file_by_now_is_begun_anew(host: Host, etags: list[str], tmp_path: Path) -> None:
    host.breaks_at, host.etags = [1000], etags
    path = tmp_path / "tiny.gguf"
    url_download(f"{host.url}/tiny.gguf", path, lambda *step: None)
    assert path.read_bytes() == FILE


def test_what_keeps_breaking_fails_without_the_query_of_its_address(host: Host, tmp_path: Path) -> None:
    host.breaks_at = [0] * 6
    with pytest.raises(FetchError, match=r"tiny\.gguf is not in the cache and could not be fetched") as caught:
        url_download(f"{host.url}/tiny.gguf?token=secret", tmp_path / "x", lambda *step: None)
    assert "secret" not in str(caught.value)
    assert len(host.asked) == 6


def test_a_status_of_an_error_is_told(host: Host, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"none\.gguf answers with status 404"):
        url_download(f"{host.url}/none.gguf", tmp_path / "x", lambda *step: None)


def test_an_address_names_a_gguf() -> None:
    assert resolve("https://h/a/b-Q4_K_M.gguf") == UrlModel("https://h/a/b-Q4_K_M.gguf", None)
    assert resolve(f"http://h:8/b.gguf?x=1#sha256={CHECKSUM}") == UrlModel("http://h:8/b.gguf?x=1", CHECKSUM)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("https://h/model.safetensors", "expected https://host/file.gguf"),
        ("https://user:word@h/a.gguf", "expected https://host/file.gguf"),
        ("https://h/a.gguf#md5=1", "and 64 hex digits"),
        (f"https://h/a.gguf#sha256={'0' * 63}", "and 64 hex digits"),
        ("http://h/a.gguf", "over http: it needs its checksum"),
    ],
)
def test_what_names_none_or_could_be_changed_on_its_way_is_refused(source: str, why: str) -> None:
    with pytest.raises(FetchError, match=why):
        resolve(source)
