"""What the engine is asked for: the request's numbers, then the model's, then the API's defaults; refusals by name."""

from typing import Any

import pytest

from adapters.canonical.errors import ContextOverflow, InternalError, InvalidRequest, QueueFull, UnsupportedParameter
from adapters.canonical.messages import SYSTEM, USER, Message, Text
from adapters.canonical.request import ReasoningOptions, Request, Sampling, TemplateOptions, Tool, ToolChoice
from local_engine import errors as engine_errors
from local_engine.sampling import Dry, SamplingDefaults
from providers.local.chat_template import ChatTemplate
from providers.local.engine_request import COMPLETION_MAX_TOKENS, MAX_STOP_CHARACTERS, gateway_error, sampling_params
from providers.local.local_model import LocalModel
from providers.local.prompt import model_prompt, num_added
from providers.local.settings import LocalModelSettings
from providers.local.text_formats import text_formats
from tests.scripted_engine import BOS_ID, EOS_ID, ScriptedEngine, Vocabulary

VOCABULARY = Vocabulary()
CHAT = (Message(role=USER, parts=(Text(text="hi"),)),)


def model(template: str | None = "{{ messages[0].content }}", **defaults: float) -> LocalModel:
    chat_template = None if template is None else ChatTemplate(template)
    return LocalModel(
        name="m",
        engine=ScriptedEngine(),
        tokenizer=VOCABULARY,
        template=chat_template,
        stop_token_ids=frozenset((EOS_ID,)),
        defaults=SamplingDefaults(**defaults),  # type: ignore[arg-type]
        formats=text_formats(chat_template, VOCABULARY, LocalModelSettings()),
    )


def chat(**fields: object) -> Request:
    return Request(**{"model": "m", "dialect": "d", "messages": CHAT, **fields})  # type: ignore[arg-type]


def completion(**fields: object) -> Request:
    return Request(model="m", dialect="d", **{"prompts": ("hi",), **fields})  # type: ignore[arg-type]


def test_the_requests_own_number_goes_before_the_models() -> None:
    params = sampling_params(model(temperature=0.2, top_k=7), chat(sampling=Sampling(temperature=0.9)))
    assert (params.temperature, params.top_k) == (0.9, 7)


def test_without_either_the_apis_defaults_apply() -> None:
    params = sampling_params(model(), chat())
    assert (params.temperature, params.top_p, params.top_k, params.max_tokens) == (1.0, 1.0, 0, None)


def test_completions_default_to_sixteen_tokens() -> None:
    assert sampling_params(model(), completion()).max_tokens == COMPLETION_MAX_TOKENS == 16


def test_a_model_without_a_template_continues_what_ollamas_clients_generate_from() -> None:
    system = Message(role=SYSTEM, parts=(Text(text="Ab."),))
    asked = chat(dialect="ollama.generate", messages=(system, *CHAT))
    assert model_prompt(model(None), asked).ids == tuple(VOCABULARY.encode("Ab.\n\nhi", add_special_tokens=True))
    with pytest.raises(UnsupportedParameter, match="no chat template"):
        model_prompt(model(None), chat(dialect="ollama.chat"))


def test_stop_strings_are_bounded_all_together() -> None:
    half = "x" * (MAX_STOP_CHARACTERS // 2)
    sampling_params(model(), chat(sampling=Sampling(stop=(half, half))))
    with pytest.raises(engine_errors.InvalidInput, match="stop") as caught:
        sampling_params(model(), chat(sampling=Sampling(stop=(half, half, "x"))))
    assert caught.value.param == "stop"


@pytest.mark.parametrize(
    ("asked", "ids", "added"),
    [
        ("hi", (BOS_ID, 104, 105), 1),
        ("<s>hi", (BOS_ID, 104, 105), 0),
        ("<s>hi", (BOS_ID, BOS_ID, 104, 105), 1),
        ("hi", (104, 105), 0),
        ((BOS_ID, 104), (BOS_ID, 104), 0),
        ("", (), 0),
    ],
)
def test_an_echo_shows_every_token_that_the_client_wrote(
    asked: str | tuple[int, ...], ids: tuple[int, ...], added: int
) -> None:
    assert num_added(model(), asked, ids) == added


def test_a_default_leaves_room_for_the_prompt_and_what_was_asked_for_does_not() -> None:
    room = ScriptedEngine().max_context - 5
    assert sampling_params(model(), completion(), prompt_tokens=room).max_tokens == 5
    assert sampling_params(model(), completion(max_tokens=16), prompt_tokens=room).max_tokens == 16
    assert sampling_params(model(), completion(sampling=Sampling(min_tokens=9)), prompt_tokens=room).max_tokens == 9


def test_an_answer_that_is_open_ended_fills_the_window() -> None:
    room = ScriptedEngine().max_context - 5
    for asked, limit in ((None, None), (4, 4), (6, 5)):
        request = completion(max_tokens=asked, open_ended=True)
        assert sampling_params(model(), request, prompt_tokens=room).max_tokens == limit
    full = completion(max_tokens=6, open_ended=True)
    assert sampling_params(model(), full, prompt_tokens=room + 5).max_tokens == 1  # the engine says why it can't


@pytest.mark.parametrize(("asked", "top_k"), [(-1, 0), (0, 0), (5, 5)])
def test_top_k_is_off_at_minus_one_and_zero(asked: int, top_k: int) -> None:
    assert sampling_params(model(), chat(sampling=Sampling(top_k=asked))).top_k == top_k


def test_a_top_p_of_zero_leaves_the_likeliest_token() -> None:
    params = sampling_params(model(), chat(sampling=Sampling(top_p=0.0)))
    assert (params.top_p, params.top_k) == (1.0, 1)


@pytest.mark.parametrize(("echo", "scored"), [(True, 3), (None, None)])
def test_the_prompt_is_scored_only_for_echo(echo: bool | None, scored: int | None) -> None:
    params = sampling_params(model(), completion(echo=echo, logprobs=3))
    assert (params.logprobs, params.prompt_logprobs) == (3, scored)


def test_a_chat_prompt_is_the_template_without_added_markers() -> None:
    assert model_prompt(model(), chat()).ids == tuple(b"hi")


@pytest.mark.parametrize(("options", "first"), [(None, BOS_ID), (TemplateOptions(add_special_tokens=False), ord("h"))])
def test_a_plain_prompt_gets_the_models_markers_unless_told(options: TemplateOptions | None, first: int) -> None:
    assert model_prompt(model(), completion(template=options)).ids[0] == first


def test_token_ids_pass_as_they_are() -> None:
    assert model_prompt(model(), completion(prompts=((1, 2, 3),))).ids == (1, 2, 3)


def test_chat_with_a_model_without_a_template_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        model_prompt(model(template=None), chat())
    assert caught.value.param == "messages"


THINKS = "{{ messages[0].content }}{{ '<think>\n' if add_generation_prompt }}"
"""Opens the reasoning in the prompt."""


@pytest.mark.parametrize(
    ("template", "begun", "inside"),
    [
        (THINKS, None, True),
        ("{{ messages[0].content }}<think></think>", None, False),
        ("{{ messages[0].content }}{{ '<think>' if false }}", None, False),
        (THINKS, "<think>so", True),
        (THINKS, "<think>so</think>", False),
        (THINKS, "so", False),
    ],
)
def test_a_prompt_tells_whether_it_ends_inside_the_reasoning(template: str, begun: str | None, inside: bool) -> None:
    request = chat()
    if begun is not None:
        text = Message(role=USER, parts=(Text(text=begun),))
        request = chat(messages=(text,), template=TemplateOptions(continue_final_message=True))
    assert model_prompt(model(template), request).opens_reasoning is inside


def test_a_mark_of_reasoning_in_the_clients_words_opens_nothing() -> None:
    request = chat(messages=(Message(role=USER, parts=(Text(text="<think>"),)),))
    assert not model_prompt(model("{{ messages[0].content }}<|end|>{{ '<think>' if false }}"), request).opens_reasoning


@pytest.mark.parametrize(
    ("template", "effort", "prompt"),
    [
        ("{{ enable_thinking }}", "none", "False"),
        ("{{ enable_thinking }}", "low", "True"),
        ("{{ thinking }} {{ reasoning_effort }}", "high", "True high"),
        ("{{ reasoning_effort }}", "none", "none"),
    ],
)
def test_the_effort_is_a_variable_of_the_template(template: str, effort: str, prompt: str) -> None:
    found = model_prompt(model(template), chat(reasoning=ReasoningOptions(effort=effort)))
    assert VOCABULARY.decode(found.ids) == prompt


def test_an_effort_that_the_template_does_not_read_is_refused() -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        model_prompt(model(), chat(reasoning=ReasoningOptions(effort="low")))
    assert caught.value.param == "reasoning_effort"


def test_tools_are_refused_where_nobody_could_read_the_calls() -> None:
    tools = (Tool(kind="function", name="f"),)
    with pytest.raises(UnsupportedParameter) as caught:
        model_prompt(model("{{ tools }}"), chat(tools=tools))
    assert caught.value.param == "tools"
    assert model_prompt(model(), chat(tools=tools)).ids


def test_the_prompt_begins_the_call_of_a_tool_that_was_chosen_by_name() -> None:
    tools = (Tool(kind="function", name="f"), Tool(kind="function", name='g"'))
    named = chat(tools=tools, tool_choice=ToolChoice(mode="required", name='g"'))
    prompt = model_prompt(model(), named)
    assert prompt.begun_call == 'g"'
    assert VOCABULARY.decode(prompt.ids).endswith('<tool_call>\n{"name": "g\\"", "arguments":')
    required = model_prompt(model(), chat(tools=tools, tool_choice=ToolChoice(mode="required")))
    assert (required.begun_call, prompt.ids[: len(required.ids)]) == (None, required.ids)


def test_a_model_that_thinks_first_begins_its_call_itself() -> None:
    tools, choice = (Tool(kind="function", name="f"),), ToolChoice(mode="required", name="f")
    thinks = "{{ messages[0].content }}<think>{{ enable_thinking }}</think>"
    assert model_prompt(model(thinks), chat(tools=tools, tool_choice=choice)).begun_call is None
    quiet = chat(tools=tools, tool_choice=choice, reasoning=ReasoningOptions(effort="none"))
    assert model_prompt(model(thinks), quiet).begun_call == "f"


def test_the_engines_refusals_name_the_clients_field() -> None:
    too_long = gateway_error(engine_errors.ContextOverflow(prompt_tokens=70, limit=64), chat())
    assert isinstance(too_long, ContextOverflow)
    assert too_long.param == "messages"
    assert "70" in too_long.message
    assert "64" in too_long.message
    answer_too_long = engine_errors.ContextOverflow(prompt_tokens=60, limit=64, max_tokens=8)
    assert gateway_error(answer_too_long, completion()).param == "max_tokens"
    out_of_range = gateway_error(engine_errors.InvalidInput("min_p", "must be ..."), chat())
    assert isinstance(out_of_range, InvalidRequest)
    assert out_of_range.param == "min_p"


def test_a_full_queue_is_a_429_with_a_wait() -> None:
    error = gateway_error(engine_errors.QueueFull(limit=1, retry_after_s=3.0), chat())
    assert isinstance(error, QueueFull)
    assert (error.status, error.retry_after_s) == (429, 3.0)


def test_more_answers_than_there_are_is_the_clients_error() -> None:
    error = gateway_error(engine_errors.TooFewAnswers(found=1, wanted=2), chat())
    assert isinstance(error, InvalidRequest)
    assert (error.status, error.param) == (400, "n")
    assert "there are 1, not 2" in error.message


def test_a_failed_generation_tells_nothing_of_the_inside() -> None:
    error = gateway_error(engine_errors.GenerationFailed("tensor at 0x7f"), chat())
    assert isinstance(error, InternalError)
    assert "0x7f" not in error.message


def test_dry_reaches_over_no_token_that_holds_a_breaker_nor_over_the_tokens_of_one() -> None:
    asked = sampling_params(model(), chat(sampling=Sampling(dry_multiplier=0.8))).dry
    behind_space = tuple((32, ord(character)) for character in '\n:"*')
    assert asked == Dry(0.8, breakers=frozenset(map(ord, '\n:"*')), phrases=behind_space)
    options: dict[str, Any] = {
        "dry_base": 2.0,
        "dry_allowed_length": 3,
        "dry_penalty_last_n": 9,
        "dry_sequence_breakers": ("ab", ""),
    }
    asked = sampling_params(model(), chat(sampling=Sampling(dry_multiplier=0.8, **options))).dry
    assert asked == Dry(0.8, 2.0, 3, 9, phrases=((97, 98), (32, 97, 98)))


def test_samplers_that_are_off_ask_nothing_of_the_engine() -> None:
    off = Sampling(dry_multiplier=0.0, dry_base=2.0, xtc_threshold=0.1, top_n_sigma=-1.0, repeat_last_n=-1)
    for sampling in (off, Sampling(dry_multiplier=0.8, dry_penalty_last_n=0), Sampling(repeat_last_n=64)):
        assert not sampling_params(model(), chat(sampling=sampling)).needs_host
