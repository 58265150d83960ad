"""What both OpenAI fronts tell the server."""

import pytest

from adapters.canonical.request import EXPRESSIBLE_FIELDS
from adapters.front import Front
from adapters.openai.chat.front import ChatFront
from adapters.openai.completions.front import CompletionsFront
from adapters.openai.vocabulary import FINISH_WORDS, STOP_REASONS
from adapters.sse import SseDecoder


@pytest.mark.parametrize("front", [ChatFront(), CompletionsFront()], ids=["chat", "completions"])
def test_a_keepalive_is_no_event(front: Front) -> None:
    assert SseDecoder().feed(front.keepalive * 3 + b"data: x\n\n") == [b"x"]


@pytest.mark.parametrize(
    ("name", "chat", "completions"),
    [
        ("reasoning.effort", "reasoning_effort", "reasoning.effort"),
        ("include_stop", "include_stop_str_in_output", "include_stop_str_in_output"),
        ("output_format", "response_format", "response_format"),
        ("prompts", "prompt", "prompt"),
        ("include_obfuscation", "stream_options.include_obfuscation", "stream_options.include_obfuscation"),
        ("template.kwargs", "chat_template_kwargs", "template.kwargs"),
        ("top_p", "top_p", "top_p"),
    ],
)
def test_a_field_is_named_as_the_client_spells_it(name: str, chat: str, completions: str) -> None:
    assert name in EXPRESSIBLE_FIELDS
    assert ChatFront().client_field(name) == chat
    assert CompletionsFront().client_field(name) == completions


def test_every_word_of_ours_is_a_word_that_we_read_back() -> None:
    for reason, word in FINISH_WORDS.items():
        assert STOP_REASONS[word] is reason or word == "stop"
