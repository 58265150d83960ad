"""A folder with a run.yaml, and a server on loopback that answers as a gateway does."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.certificates import certificate

WriteConfig = Callable[[str], Path]


@dataclass
class FakeGateway:
    """What it answers, and what it was asked."""

    port: int = 0
    scheme: str = "http"
    status: int = 200
    words: list[str] = field(default_factory=lambda: ["Hello", " there"])
    refuses: bool = False
    error: dict[str, object] | None = None
    bodies: list[dict[str, object]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    defaults: dict[str, float] | None = None

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/v1"


def _chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


@pytest.fixture
def fake_gateway() -> Iterator[FakeGateway]:
    with _serving(FakeGateway()) as state:
        yield state


@pytest.fixture
def https_gateway(tmp_path: Path) -> Iterator[FakeGateway]:
    """Its certificate is cert.pem, its key key.pem, in the test's folder."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(tmp_path, "gateway.example.com"))
    with _serving(FakeGateway(scheme="https"), context) as state:
        yield state


@contextmanager
def _serving(state: FakeGateway, tls: ssl.SSLContext | None = None) -> Iterator[FakeGateway]:

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.keys.append(self.headers.get("authorization", ""))
            if state.status != 200:
                self._send(state.status, json.dumps({"error": state.error}).encode())
                return
            known = {"input": ["text", "image"], "tools": True, "prices": {"input": 5.0, "output": 0.25}}
            if state.defaults is not None:
                known["defaults"] = state.defaults
            row = {"id": "fast", "owned_by": "gateway", "context_window": 2048, "gateway": known}
            answer = {"object": "list", "data": [row]} if self.path.endswith("/models") else row
            self._send(200, json.dumps(answer).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            state.keys.append(self.headers.get("authorization", ""))
            state.bodies.append(body)
            state.paths.append(self.path)
            if state.error is not None:
                self._send(404, json.dumps({"error": state.error}).encode())
                return
            told = "refusal" if state.refuses else "content"
            frames = [_chunk({"role": "assistant"}), *(_chunk({told: word}) for word in state.words)]
            frames += [_chunk({}, "stop"), b"data: [DONE]\n\n"]
            self._send(200, b"".join(frames), "text/event-stream")

        def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.port = server.server_address[1]
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield state
        server.shutdown()
        thread.join()


@pytest.fixture
def write_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteConfig:
    """Writes run.yaml into the working directory."""
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> Path:
        path = tmp_path / "run.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write
