"""Filling in at Mistral's own path: the question is that of completions, the answer that of chat."""

import json

from adapters.canonical.events import ChoiceFinished
from adapters.canonical.messages import Text
from adapters.canonical.result import fold
from adapters.openai.completions.fim import FimUpstream
from adapters.openai.completions.parse import parse_completions
from adapters.openai.quirks import Quirks

ASKED = {"model": "codestral-latest", "prompt": "def f(", "suffix": "return a", "max_tokens": 9, "seed": 7}
UPSTREAM = FimUpstream(Quirks(names={"seed": "random_seed"}, stream_options=False))


def test_a_prompt_and_a_suffix_go_out_and_a_message_comes_back() -> None:
    request = parse_completions(json.dumps(ASKED).encode(), max_depth=8)
    sent = json.loads(UPSTREAM.render_request(request))
    assert sent == {**{name: value for name, value in ASKED.items() if name != "seed"}, "random_seed": 7}
    message = {"role": "assistant", "content": "a):", "tool_calls": None, "prefix": False}
    body = {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    (choice,) = fold(UPSTREAM.parse_body(request, json.dumps(body).encode())).choices
    assert choice.parts == (Text(text="a):"),)
    assert isinstance(choice.finish, ChoiceFinished)
