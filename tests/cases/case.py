"""The cases of open.yaml, read once: what is asked, what the upstream or the engine says, what must come of it."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from tests.mock_upstream import Answer

__all__ = ["Case", "all_cases", "case_named"]

_FILE = Path(__file__).with_name("open.yaml")


@dataclass(frozen=True)
class Case:
    """`facts` is the case as the file has it. What is given out are copies."""

    id: str
    facts: Mapping[str, Any]

    @property
    def requests(self) -> list[dict[str, Any]]:
        """In order; a plain text among them is an instruction, which the check follows in code."""
        found = copy.deepcopy(self.facts["request"])
        return found if isinstance(found, list) else [found]

    @property
    def body(self) -> dict[str, Any]:
        """The first request's body."""
        body: dict[str, Any] = self.requests[0]["body"]
        return body

    def body_with(self, **fields: Any) -> dict[str, Any]:
        return {**self.body, **fields}

    def towards(self, model: str) -> "Case":
        """The same first request for another model, with nothing said of what stands behind it."""
        return Case(self.id, {"request": {**self.requests[0], "body": self.body_with(model=model)}})

    @property
    def path(self) -> str:
        path: str = self.requests[0]["path"]
        return path

    @property
    def headers(self) -> dict[str, str]:
        headers: dict[str, str] = self.requests[0].get("headers", {})
        return headers

    @property
    def upstream(self) -> Mapping[str, Any]:
        facts: Mapping[str, Any] = self.facts["upstream"]
        return facts

    @property
    def engine(self) -> Mapping[str, Any]:
        facts: Mapping[str, Any] = self.facts["engine"]
        return facts

    @property
    def upstream_bytes(self) -> bytes:
        """The exact bytes of the upstream's body."""
        if "chunks_hex" in self.upstream:
            return b"".join(self.upstream_pieces)
        body: str = self.upstream["body"]
        return body.encode()

    @property
    def upstream_pieces(self) -> list[bytes]:
        """The separate writes of the upstream's body."""
        if "chunks_hex" in self.upstream:
            return [bytes.fromhex(piece) for piece in self.upstream["chunks_hex"]]
        return [self.upstream_bytes] if self.upstream["body"] else []

    def answer(self, *pieces: bytes) -> Answer:
        """What the upstream answers; with `pieces`, these in place of its body."""
        headers = {name: value for name, value in self.upstream["headers"].items() if name != "transfer-encoding"}
        streams = headers["content-type"] == "text/event-stream" or "transfer-encoding" in self.upstream["headers"]
        return Answer(
            status=self.upstream["status"],
            headers=headers,
            pieces=pieces or self.upstream_pieces,
            framing="chunked" if streams else "length",
        )

    def upstream_json(self) -> Any:
        """The upstream's body, where it is one JSON value."""
        return json.loads(self.upstream_bytes)


@lru_cache(maxsize=1)
def all_cases() -> Mapping[str, Case]:
    rows = yaml.safe_load(_FILE.read_text(encoding="utf-8"))["cases"]
    return {row["id"]: Case(row["id"], row) for row in rows}


def case_named(name: str) -> Case:
    """The case of a check's name, which may have a variant behind a slash."""
    return all_cases()[name.partition("/")[0]]
