"""The names of set fields, and taking fields away."""

from typing import Any

import pytest
from msgspec.structs import replace

from adapters.canonical.messages import Message
from adapters.canonical.request import (
    EXPRESSIBLE_FIELDS,
    LoraAdapter,
    OutputFormat,
    ReasoningOptions,
    Request,
    Sampling,
    TemplateOptions,
    ToolChoice,
    set_fields,
    without_fields,
)

EMPTY = Request(model="m", dialect="d")
VALUES: dict[str, Any] = {
    "messages": (Message(role="user"),),
    "prompts": ("x",),
    "tools": (),
    "tool_choice": ToolChoice(mode="auto"),
    "output_format": OutputFormat(kind="text"),
    "adapter": LoraAdapter(name="a"),
    "logit_bias": {},
}


def with_field(name: str) -> Request:
    """A request with this field alone. Zero and False are set values."""
    value = VALUES.get(name, 0)
    group, _, member = name.rpartition(".")
    if group == "reasoning":
        return replace(EMPTY, reasoning=ReasoningOptions(**{member: value}))
    if group == "template":
        return replace(EMPTY, template=TemplateOptions(**{member: value}))
    if name in Sampling.__struct_fields__:
        return replace(EMPTY, sampling=Sampling(**{name: value}))
    return replace(EMPTY, **{name: value})


@pytest.mark.parametrize("name", sorted(EXPRESSIBLE_FIELDS))
def test_a_field_set_alone_is_reported_and_can_be_taken_away(name: str) -> None:
    request = with_field(name)
    assert set_fields(request) == [name]
    assert set_fields(without_fields(request, [name])) == []


def test_a_request_that_sets_nothing_reports_nothing() -> None:
    assert set_fields(EMPTY) == []
    assert set_fields(replace(EMPTY, stream=True, include_usage=True, request_id="r", extras={"x": b"1"})) == []


def test_all_fields_together_are_reported_once_each() -> None:
    request = EMPTY
    for name in EXPRESSIBLE_FIELDS:
        one = with_field(name)
        for group in ("sampling", "reasoning", "template"):
            member = name.rpartition(".")[2]
            if getattr(one, group) != getattr(EMPTY, group):
                base = getattr(request, group) or type(getattr(one, group))()
                request = replace(request, **{group: replace(base, **{member: VALUES.get(name, 0)})})
                break
        else:
            request = replace(request, **{name: getattr(one, name)})
    assert sorted(set_fields(request)) == sorted(EXPRESSIBLE_FIELDS)
    assert set_fields(without_fields(request, EXPRESSIBLE_FIELDS)) == []
    assert set_fields(without_fields(request, ["top_p", "reasoning.effort"])) == [
        name for name in set_fields(request) if name not in ("top_p", "reasoning.effort")
    ]


def test_an_unknown_name_cannot_be_taken_away() -> None:
    with pytest.raises(KeyError):
        without_fields(EMPTY, ["nothing"])


@pytest.mark.parametrize(
    ("request_", "choices"),
    [
        (EMPTY, 1),
        (replace(EMPTY, n=3), 3),
        (replace(EMPTY, prompts=("a", (1, 2))), 2),
        (replace(EMPTY, prompts=("a", "b"), n=3), 6),
    ],
)
def test_choices_are_n_for_each_prompt(request_: Request, choices: int) -> None:
    assert request_.num_choices == choices
