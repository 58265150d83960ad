"""What llama.cpp's clients send and read: the bodies of its README, of llama.vim and of SillyTavern."""

import json
from typing import Any

import pytest

from adapters.canonical.errors import InvalidRequest, UpstreamError
from adapters.canonical.events import ChoiceFinished, Event, ProviderReported, Started, TextDelta, UsageReported
from adapters.canonical.request import Sampling, set_fields
from adapters.canonical.result import fold
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import TokenLogprob, TopLogprob, Usage
from adapters.front import AnswerHead, ListedModel
from adapters.hints import is_hint
from adapters.llamacpp.front import CompletionFront, InfillFront
from adapters.llamacpp.props import Props
from adapters.llamacpp.vocabulary import LLAMACPP
from adapters.ollama.answer import OWN_FIELDS
from tests.adapters.sides import refuse_constant

COMPLETION, INFILL = CompletionFront(), InfillFront()
HEAD = AnswerHead("1", 2, "m")
TIMES = {"prompt_eval_duration": b"20000000", "eval_duration": b"5000000"}
LLAMA_VIM: dict[str, Any] = {
    "id_slot": 0,
    "input_prefix": "int main() {\n",
    "input_suffix": "}\n",
    "input_extra": [{"text": "int f();", "time": 7, "filename": "f.h"}],
    "prompt": "    ret",
    "n_predict": 128,
    "stop": [],
    "n_indent": 4,
    "top_k": 40,
    "top_p": 0.9,
    "stream": False,
    "samplers": ["top_k", "top_p", "infill"],
    "cache_prompt": True,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 1000,
    "response_fields": ["content", "timings/prompt_n", "timings/predicted_ms", "truncated", "no/such"],
}


def body(**fields: Any) -> bytes:
    return json.dumps({"prompt": "p", **fields}).encode()


def events(finish: ChoiceFinished, *, cut: bool, logprobs: tuple[TokenLogprob, ...] = ()) -> list[Event]:
    deltas = [TextDelta(0, 0, "Pa", logprobs, (5,)), TextDelta(0, 0, "ris", (), (6,))]
    usage = Usage(prompt_tokens=9, completion_tokens=2, cached_tokens=4)
    return [
        Started(),
        *(deltas if cut else [TextDelta(0, 0, "Paris", logprobs, (5, 6))]),
        ProviderReported(TIMES, OWN_FIELDS),
        finish,
        UsageReported(usage),
    ]


def answer(front: CompletionFront, sent: bytes, finish: ChoiceFinished, **more: Any) -> dict[str, Any]:
    """The whole answer, which the last frame of a stream is too, but for its text."""
    request = front.parse(sent, max_depth=9)
    whole: dict[str, Any] = json.loads(
        front.render_result(request, fold(events(finish, cut=False, **more)), HEAD), parse_constant=refuse_constant
    )
    renderer = front.renderer(request, HEAD)
    stream = renderer.feed(events(finish, cut=True, **more)) + renderer.finish()
    frames = [json.loads(frame.removeprefix("data: ")) for frame in stream.decode().split("\n\n")[:-1]]
    assert [frame["stop"] for frame in frames[:-1]] == [False, False]
    assert "".join(frame["content"] for frame in frames[:-1]) == "Paris"
    told = {name: value for name, value in whole.items() if name in frames[-1]}
    assert {**told, "content": "", "tokens": []} == {"content": "", "tokens": [], **frames[-1]}
    return whole


def test_what_llama_vim_asks_is_filled_in_between_its_texts() -> None:
    request = INFILL.parse(json.dumps(LLAMA_VIM).encode(), max_depth=9)
    assert request.prompts == ("\n\n--- f.h ---\n\nint f();\n\n--- file ---\n\nint main() {\n    ret",)
    assert (request.suffix, request.model, request.max_tokens, request.stream) == ("}\n", "", 128, False)
    assert request.sampling == Sampling(top_k=40, top_p=0.9)
    assert request.extras
    assert all(is_hint(LLAMACPP, name, raw) for name, raw in request.extras.items())


def test_what_llama_vim_reads_is_what_it_asked_to_see() -> None:
    front, sent = INFILL, json.dumps(LLAMA_VIM).encode()
    request = front.parse(sent, max_depth=9)
    whole = front.render_result(request, fold(events(ChoiceFinished(0, StopReason.STOP), cut=False)), HEAD)
    assert json.loads(whole) == {
        "content": "Paris", "timings/prompt_n": 5, "timings/predicted_ms": pytest.approx(5.0), "truncated": False,
    }  # fmt: skip


def test_an_end_of_a_file_is_filled_in_too() -> None:
    request = INFILL.parse(b'{"input_prefix": "a"}', max_depth=9)
    assert (request.prompts, request.suffix) == (("a",), "")


@pytest.mark.parametrize(
    ("finish", "kind", "word"),
    [
        (ChoiceFinished(0, StopReason.STOP), "eos", ""),
        (ChoiceFinished(0, StopReason.STOP, stop="\n"), "word", "\n"),
        (ChoiceFinished(0, StopReason.STOP, stop=7), "eos", ""),
        (ChoiceFinished(0, StopReason.LENGTH), "limit", ""),
        (ChoiceFinished(0, StopReason.OTHER, "odd"), "none", ""),
    ],
)
def test_an_answer_says_why_it_stops_and_what_time_it_took(finish: ChoiceFinished, kind: str, word: str) -> None:
    found = answer(COMPLETION, body(), finish)
    assert (found["stop"], found["stop_type"], found["stopping_word"]) == (True, kind, word)
    assert (found["content"], found["tokens"], found["model"]) == ("Paris", [5, 6], "m")
    assert (found["tokens_evaluated"], found["tokens_predicted"], found["tokens_cached"]) == (9, 2, 4)
    timings = found["timings"]
    assert (timings["cache_n"], timings["prompt_n"], timings["predicted_n"]) == (4, 5, 2)
    assert timings["prompt_per_token_ms"] == pytest.approx(4.0)
    assert timings["predicted_per_second"] == pytest.approx(400.0)


def test_probabilities_of_tokens_name_their_ids() -> None:
    token = TokenLogprob("Pa", -0.5, 5, b"Pa", (TopLogprob("Lo", -1.5, 8, b"Lo"),))
    finish = ChoiceFinished(0, StopReason.STOP)
    (row,) = answer(COMPLETION, body(n_probs=1), finish, logprobs=(token,))["completion_probabilities"]
    assert row == {
        "id": 5, "token": "Pa", "bytes": [80, 97], "logprob": -0.5,
        "top_logprobs": [{"id": 8, "token": "Lo", "bytes": [76, 111], "logprob": -1.5}],
    }  # fmt: skip


def test_an_answer_that_was_given_up_is_an_error_in_both_modes() -> None:
    request = COMPLETION.parse(body(), max_depth=9)
    given_up = ChoiceFinished(0, StopReason.ERROR, "error")
    with pytest.raises(UpstreamError):
        COMPLETION.render_result(request, fold(events(given_up, cut=False)), HEAD)
    with pytest.raises(UpstreamError):
        COMPLETION.renderer(request, HEAD).feed([given_up])


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"n_predict": 5}, "max_tokens", 5),
        ({"n_predict": -1}, "max_tokens", None),
        ({"n_probs": 3}, "logprobs", 3),
        ({"n_probs": 0}, "logprobs", None),
        ({"return_tokens": True}, "return_token_ids", True),
        ({"prompt": [1, 2]}, "prompts", ((1, 2),)),
    ],
)
def test_fields_are_mapped(fields: dict[str, Any], name: str, value: object) -> None:
    request = COMPLETION.parse(body(**fields), max_depth=9)
    assert getattr(request, name) == value
    assert request.extras == {}
    assert request.open_ended


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"temperature": 4.5}, "temperature", 4.5),
        ({"repeat_penalty": 1.1}, "repetition_penalty", 1.1),
        ({"typical_p": 0.5}, "typical_p", 0.5),
        ({"dry_multiplier": 0.8}, "dry_multiplier", 0.8),
        ({"xtc_threshold": 0.2}, "xtc_threshold", 0.2),
        ({"repeat_last_n": 64}, "repeat_last_n", 64),
        ({"samplers": ["top_k", "xtc", "temperature"]}, "temperature_last", True),
        ({"samplers": ["temperature", "xtc"]}, "temperature_last", None),
        ({"stop": ["a", "b"]}, "stop", ("a", "b")),
        ({"ignore_eos": True}, "ignore_eos", True),
        ({"logit_bias": [[7, -1.5], [8, False]]}, "logit_bias", {7: -1.5, 8: -100.0}),
        ({"logit_bias": {"7": 2}}, "logit_bias", {7: 2}),
    ],
)
def test_sampling_is_mapped(fields: dict[str, Any], name: str, value: object) -> None:
    request = COMPLETION.parse(body(**fields), max_depth=9)
    assert getattr(request.sampling, name) == value
    assert request.extras == {}


@pytest.mark.parametrize("fields", [{"grammar": 'root ::= "a"'}, {"json_schema": {"type": "object"}}])
def test_an_answer_may_be_held_to_a_form(fields: dict[str, Any]) -> None:
    assert "output_format" in set_fields(COMPLETION.parse(body(**fields), max_depth=9))


@pytest.mark.parametrize(
    ("name", "off", "on"),
    [("mirostat", 0, 2), ("post_sampling_probs", False, True), ("lora", [], [1])],
)
def test_samplers_that_are_off_stop_nobody(name: str, off: object, on: object) -> None:
    assert is_hint(LLAMACPP, name, json.dumps(off).encode())
    assert not is_hint(LLAMACPP, name, json.dumps(on).encode())


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"n_predict": -3}, "n_predict"),
        ({"temperature": "hot"}, "temperature"),
        ({"logit_bias": [["a", 1]]}, "logit_bias"),
        ({"response_fields": "content"}, "response_fields"),
    ],
)
def test_what_is_wrong_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        COMPLETION.parse(body(**fields), max_depth=9)
    assert caught.value.param == param


def test_refusals_speak_the_clients_words() -> None:
    names = ("repetition_penalty", "max_tokens", "suffix", "prompts", "seed")
    assert [COMPLETION.client_field(name) for name in names] == [
        "repeat_penalty", "n_predict", "input_suffix", "prompt", "seed",
    ]  # fmt: skip
    assert INFILL.client_field("prompts") == "input_prefix"


def test_properties_tell_the_window_and_what_else_a_model_reads() -> None:
    model = ListedModel(id="m", created=0, owned_by="o", context=4096, gateway={"input": ["text", "image"]})
    told = json.loads(Props().render_model(model))
    assert told["default_generation_settings"] == {"n_ctx": 4096}
    assert (told["model_alias"], told["modalities"]) == ("m", {"vision": True, "audio": False})
