"""A chat client's request, and what Cohere's upstream makes of it and of its answer."""

import json
from typing import Any

from adapters.cohere.upstream import CohereUpstream
from adapters.front import AnswerHead
from adapters.openai.chat.front import ChatFront
from tests.adapters.sides import Sides

__all__ = ["HEAD", "PROVIDER", "Exchange", "chat"]

HEAD = AnswerHead("answer-1", 1790000001, "public-name")
PROVIDER = "co"


class Exchange(Sides):
    def __init__(self, body: bytes) -> None:
        super().__init__(ChatFront(), CohereUpstream(PROVIDER), HEAD, body)


def chat(**fields: Any) -> Exchange:
    """An exchange for a chat body with these fields set or replaced."""
    body = {"model": "command-a", "messages": [{"role": "user", "content": "hi"}], **fields}
    return Exchange(json.dumps(body).encode())
