"""Token streams of every form of calls, their marks as special tokens: the same events wherever the steps are cut."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.canonical.events import Event
from adapters.canonical.messages import USER, Message, Reasoning, Text, ToolCall
from adapters.canonical.request import Request, Tool
from adapters.canonical.result import Choice, fold
from adapters.canonical.stop_reason import StopReason
from adapters.text.harmony import HARMONY_MARKS
from adapters.text.tool_calls import TOOL_FORMATS
from local_engine.generation import StepOutput, TokenOutput
from local_engine.sampling import SamplingDefaults
from providers.local.chat_template import ChatTemplate
from providers.local.local_model import LocalModel
from providers.local.settings import LocalModelSettings
from providers.local.text_answer import TextAnswer
from providers.local.text_formats import text_formats, text_pipeline
from tests.adapters.text.written_calls import written_calls
from tests.scripted_engine import EOS_ID, ScriptedEngine, Vocabulary

THOUGHT, SAID = "I plan 😊.", "Look."
ARGUMENTS = {"text": 'a "b" 😊', "n": 7}
SCHEMA = b'{"properties": {"text": {"type": "string"}, "n": {"type": "integer"}}}'
HARMONY = (
    f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>commentary<|message|>{SAID}<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json"
    '<|message|>{"text": "a \\"b\\" 😊", "n": 7}'
)
LEADING = ("llama3_json", "json", "pythonic")
"""Forms that stand at the beginning of an answer, so nothing is said before."""
FORMS = [*sorted(TOOL_FORMATS), "harmony"]


class SpecialMarks(Vocabulary):
    """A vocabulary of single bytes and of marks, all of them special."""

    def __init__(self, marks: tuple[str, ...]) -> None:
        super().__init__(marks)
        self._marks = frozenset(self.add(mark) for mark in marks)

    def is_special(self, token_id: int) -> bool:
        return super().is_special(token_id) or token_id in self._marks


class Stage:
    def __init__(self, form: str) -> None:
        reasoning = "harmony" if form == "harmony" else "think"
        marks = HARMONY_MARKS if form == "harmony" else ("<think>", "</think>", *TOOL_FORMATS[form].marks)
        self.vocabulary = SpecialMarks(marks)
        tool_format = "none" if form == "harmony" else form
        settings = LocalModelSettings(reasoning_format=reasoning, tool_format=tool_format)
        template = ChatTemplate("{{ tools }}")
        self.model = LocalModel(
            name="m",
            engine=ScriptedEngine(),
            tokenizer=self.vocabulary,
            template=template,
            stop_token_ids=frozenset((EOS_ID,)),
            defaults=SamplingDefaults(),
            formats=text_formats(template, self.vocabulary, settings),
        )
        said = "" if form in LEADING else SAID
        call = "" if form == "harmony" else written_calls(form, ("f", ARGUMENTS))
        text = HARMONY if form == "harmony" else f"<think>\n{THOUGHT}\n</think>\n\n{said}{call}"
        self.ids = self.vocabulary.encode(text, add_special_tokens=False)
        self.said = said
        self.request = Request(
            model="m",
            dialect="d",
            messages=(Message(role=USER, parts=(Text(text="hi"),)),),
            tools=(Tool(kind="function", name="f", parameters=SCHEMA),),
            logprobs=0,
            return_token_ids=True,
        )

    def answer(self, sizes: list[int], *, ids: list[int] | None = None) -> Choice:
        """What comes of the tokens in steps of these sizes, and then of one each."""
        numbers = count()
        line = text_pipeline(
            self.model.formats, self.request, starts_inside=False, new_call_id=lambda: f"call_{next(numbers)}"
        )
        answer = TextAnswer(self.model, self.request, line)
        left = tuple([TokenOutput(token, -0.5, ()) for token in (self.ids if ids is None else ids)])
        events: list[Event] = []
        steps = iter(sizes)
        while left:
            size = next(steps, 1)
            events += answer.feed(StepOutput(left[:size], None, None, None, 1, 0))
            left = left[size:]
        events += answer.feed(StepOutput((), "stop", EOS_ID, None, 1, 0))
        return fold(events).choices[0]


def cuts(length: int) -> Iterator[list[int]]:
    for place in range(1, length):
        yield [place, length - place]


@pytest.mark.parametrize("form", FORMS)
def test_a_stream_of_tokens_gives_the_same_events_wherever_it_is_cut(form: str) -> None:
    stage = Stage(form)
    whole = stage.answer([len(stage.ids)])
    *said, call = whole.parts
    assert said == [Reasoning(text=THOUGHT), *([Text(text=SAID)] if stage.said or form == "harmony" else [])]
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == ("f", '{"text": "a \\"b\\" 😊", "n": 7}')
    assert whole.finish.reason is StopReason.TOOL_CALLS
    assert "".join([(entry.raw or b"").decode(errors="replace") for entry in whole.logprobs]) == "".join(
        [part.text for part in said if isinstance(part, Text)]
    )
    for sizes in ([], *cuts(len(stage.ids))):
        assert stage.answer(sizes) == whole


@given(data=st.data(), form=st.sampled_from(FORMS))
def test_streams_of_any_tokens_never_fail_and_are_the_same_in_any_steps(data: st.DataObject, form: str) -> None:
    stage = Stage(form)
    pieces = st.sampled_from(sorted(set(stage.ids))) | st.integers(0, 255)
    ids = data.draw(st.lists(pieces, max_size=40))
    at = data.draw(st.integers(0, len(stage.ids)))
    ids = stage.ids[:at] + ids
    sizes = data.draw(st.lists(st.integers(1, 9), max_size=20))
    whole = stage.answer([max(len(ids), 1)], ids=ids)
    assert stage.answer(sizes, ids=ids) == whole
    told = [*whole.reasoning_logprobs, *whole.logprobs]
    assert len(told) == len(whole.token_ids) <= len(ids)


def test_the_ends_of_a_harmony_answer_are_plain_ends() -> None:
    stage = Stage("harmony")
    call = stage.vocabulary.add("<|call|>")
    assert call in stage.model.formats.ends
    model = replace(stage.model)
    events = TextAnswer(model, stage.request).feed(StepOutput((), "stop", call, None, 1, 0))
    assert fold(events).choices[0].finish.stop is None
