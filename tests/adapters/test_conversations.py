"""Every client dialect with every upstream dialect: four turns, thoughts, parallel calls, to the model and back."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.anthropic.upstream import MessagesUpstream
from adapters.bedrock.upstream import ConverseUpstream
from adapters.canonical.events import ToolCallStarted
from adapters.canonical.request import Request
from adapters.canonical.result import fold
from adapters.front import AnswerHead
from adapters.gemini.upstream import GenerateUpstream
from adapters.openai.responses.upstream import ResponsesUpstream
from adapters.upstream import Upstream
from providers.remote.aws import EventStreamFrames
from tests.adapters.conversations import CLIENTS, SERVERS, Client, Server, Turn

HEAD = AnswerHead("id", 1790000000, "m")
MODEL = [
    Turn("model", "Let me look.", [("f", {"x": 1}), ("g", {}), ("f", {"x": 2})], thought="Three at once."),
    Turn("model", "", [("g", {"y": ["é", None, 1.5]})], thought="One more."),
    Turn("model", "Here it is."),
    Turn("model", "You are welcome.", thought="Be kind."),
]


OTHERS: dict[str, Callable[[], Upstream]] = {
    # The same servers under another name in run.yaml: other accounts, whose proofs are none here.
    "messages": lambda: MessagesUpstream("other"),
    "converse": lambda: ConverseUpstream("other", EventStreamFrames),
    "gemini": lambda: GenerateUpstream("other"),
    "responses": lambda: ResponsesUpstream("other"),
}


class Conversation:
    """One client that talks to one server, and what was said so far as both must have it."""

    def __init__(self, client: Client, server: Server) -> None:
        self._client = client
        self._server = server
        self._front = client.front()
        self._messages: list[Any] = []
        self.expected: list[Turn] = []
        self.answered = ""

    def ask(self, text: str) -> None:
        self._messages.append(self._client.user(text))
        self.expected.append(Turn("user", text))

    def request(self) -> Request:
        body = json.dumps(self._client.body(self._messages)).encode()
        found = self._front.parse(body, max_depth=64)
        return replace(found, model="m")

    def seen(self) -> list[Turn]:
        """The conversation as it reaches the server, which gets the same bytes for the same request."""
        upstream = self._server.upstream()
        first, again = upstream.render_request(self.request()), upstream.render_request(self.request())
        assert first == again
        return self._server.read(json.loads(first))

    def hear(self, turn: Turn) -> tuple[Any, Turn]:
        """The answer that the client reads, and keeps."""
        request = self.request()
        upstream = self._server.upstream()
        self.answered = json.dumps(self._server.answer(turn))
        events = upstream.parse_body(request, self.answered.encode())
        ids = [event.id for event in events if isinstance(event, ToolCallStarted)]
        assert len(set(ids)) == len(turn.calls)
        kept, told = self._client.said(json.loads(self._front.render_result(request, fold(events), HEAD)))
        self._messages.append(kept)
        self.expected.append(turn)
        return kept, told

    def answer_calls(self, kept: Any, turn: Turn) -> None:
        outputs = [f"{name} gave {number}" for number, (name, _) in enumerate(turn.calls)]
        self._messages += self._client.results(kept, outputs)
        results = [(name, text) for (name, _), text in zip(turn.calls, outputs, strict=True)]
        self.expected.append(Turn("user", results=results))


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_conversation_of_four_turns_loses_nothing(client: str, server: str) -> None:
    conversation = Conversation(CLIENTS[client], SERVERS[server])
    conversation.ask("go")
    for turn in MODEL:
        assert conversation.seen() == conversation.expected
        kept, told = conversation.hear(turn)
        assert told == turn
        assert told.thought == turn.thought
        if turn.calls:
            conversation.answer_calls(kept, turn)
        else:
            conversation.ask("and now?")
    assert conversation.seen() == conversation.expected


@pytest.mark.parametrize("server", ["messages", "converse", "gemini", "responses"])
@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "ollama"])
def test_what_proves_a_thought_comes_back_to_its_maker_through_every_client_that_can_carry_it(
    client: str, server: str
) -> None:
    conversation = Conversation(CLIENTS[client], SERVERS[server])
    conversation.ask("go")
    proofs: list[bytes] = []
    for turn in MODEL[:2]:
        kept, _ = conversation.hear(turn)
        proofs.append(b"SIG%d" % max(map(int, re.findall(r"SIG(\d+)", conversation.answered))))
        conversation.answer_calls(kept, turn)
        sent = SERVERS[server].upstream().render_request(conversation.request())
        assert [proof in sent for proof in proofs] == [True] * len(proofs)
        other = OTHERS[server]().render_request(conversation.request())
        assert not any(proof in other for proof in proofs)


@pytest.mark.parametrize("server", [server for name, server in SERVERS.items() if name != "responses"])
def test_what_is_said_of_a_group_of_tools_reaches_the_models_that_know_no_groups(server: Server) -> None:
    function = {"type": "function", "name": "find", "description": "Finds one.", "parameters": {"type": "object"}}
    group = {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [function]}
    body = {"model": "m", "input": "x", "tools": [group]}
    asked = CLIENTS["responses"].front().parse(json.dumps(body).encode(), max_depth=64)
    sent = server.upstream().render_request(replace(asked, model="m")).decode()
    assert re.findall(r'"description": ?("[^"]*")', sent) == [json.dumps("Customers.\n\nFinds one.")]
