"""docs/fields.md: what becomes of each field of a request at each target. Written by `pytest --update-golden`.

Each cell is measured: a field that counts as mapped changes what the upstream gets, and one that is refused is refused
by the router. A hint changes nothing about an answer, and is named here.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

from adapters.anthropic.upstream import MessagesUpstream
from adapters.bedrock.upstream import ConverseUpstream
from adapters.canonical.citation import CHAR, RESULT, Citation, Place
from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.events import AnnotationAdded, ChoiceFinished, TextDelta
from adapters.canonical.messages import Audio, Document, File, Image, Opaque, Part, Reasoning, Refusal, Text, Video
from adapters.canonical.request import EXPRESSIBLE_FIELDS, Request
from adapters.canonical.stop_reason import StopReason
from adapters.cohere.upstream import CohereUpstream
from adapters.gemini.upstream import GenerateUpstream
from adapters.ollama.upstream import OllamaUpstream
from adapters.openai.chat.upstream import ChatUpstream
from adapters.openai.responses.upstream import ResponsesUpstream
from adapters.upstream import Upstream
from gateway.routing.requirements import fit
from providers.base import Capabilities, ProviderSettings
from providers.local.provider import LocalProvider
from providers.registry import build
from providers.remote.aws import EventStreamFrames
from providers.remote.vendors import VENDORS
from tests.adapters.test_citations import BODIES, body_of
from tests.providers.field_samples import plain_request, request_with

DOCUMENT = Path(__file__).parents[2] / "docs" / "fields.md"
CHAT_VENDORS = [name for name, vendor in VENDORS.items() if "messages" in vendor.fields]
UPSTREAMS: Mapping[str, Callable[[], Upstream]] = {
    "anthropic": lambda: MessagesUpstream("x"),
    "bedrock": lambda: ConverseUpstream("x", EventStreamFrames),
    "cohere": lambda: CohereUpstream("x"),
    "gemini": lambda: GenerateUpstream("x"),
    "ollama": lambda: OllamaUpstream("x"),
    "openai-responses": lambda: ResponsesUpstream("x"),
}
TARGETS = (*UPSTREAMS, *CHAT_VENDORS)
ELSEWHERE = frozenset(("messages", "prompts", "suffix", "echo", "best_of", "prompt_logprobs"))
"""The conversation itself, and what belongs to plain completions."""
FIELDS = sorted(EXPRESSIBLE_FIELDS - ELSEWHERE)
HINTS: Mapping[str, frozenset[str]] = {
    # Taken although nothing is sent: they ask for what the target does anyway.
    "anthropic": frozenset(
        (
            "reasoning.include",
            "template.add_generation_prompt",
            "template.continue_final_message",
        )
    ),
}
ANYWHERE = frozenset(
    (
        "keep_alive_s",
        "metadata",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "temperature_last",
        "user",
    )
)
"""Hints that any target may leave out."""
CITATIONS: Mapping[str, Citation] = {
    "a page, by its address": Citation(url="https://a.example", title="A"),
    "a file, by its id": Citation(file_id="file_1", title="A"),
    "a place in a document of the request": Citation(document=0, title="A", place=Place(CHAR, 0, 9)),
    "a place in a search result of the request": Citation(url="a", document=0, title="A", place=Place(RESULT, 0, 1)),
    "a document, or a result of a tool, by title or text": Citation(title="A", cited_text="a"),
}
PARTS: tuple[type[Part], ...] = (Text, Refusal, Reasoning, Image, Audio, Video, File, Document, Opaque)


@cache
def capabilities_of(target: str) -> Capabilities:
    options = {"bedrock": {"region": "us-east-1"}}.get(target, {})
    settings = ProviderSettings(
        name="x", type=target, base_url="http://127.0.0.1:9/v1", api_key="secret-key", options=options
    )
    return build(settings).capabilities("m")


def upstream_of(target: str) -> Upstream:
    return UPSTREAMS[target]() if target in UPSTREAMS else ChatUpstream(VENDORS[target].quirks)


def fitted(target: str, request: Request) -> Request:
    found = fit(request, capabilities_of(target), str, drop=False, completions_as_chat=False)
    assert set(found.dropped) <= ANYWHERE
    return found.request


def becomes(target: str, field: str) -> str:
    """What the field becomes, as the table says it."""
    try:
        request = fitted(target, request_with(field))
    except UnsupportedParameter:
        return "-"
    if field == "n" and not capabilities_of(target).native_choices:
        return "n calls"
    upstream = upstream_of(target)
    try:
        changed = upstream.render_request(request) != upstream.render_request(plain_request(field))
    except UnsupportedParameter:
        return "some"  # the field, but not this value of it
    if changed:
        return "yes"
    return "hint"


@pytest.mark.parametrize("target", TARGETS)
def test_a_field_that_a_target_takes_reaches_it_and_any_other_is_refused_by_name(target: str) -> None:
    found = {field: becomes(target, field) for field in FIELDS}
    hints = {field for field, what in found.items() if what == "hint"}
    assert hints <= HINTS.get(target, frozenset()) | (ANYWHERE - capabilities_of(target).fields)
    taken = {field for field, what in found.items() if what != "-"}
    assert taken - hints <= capabilities_of(target).fields


def table(targets: tuple[str, ...] | list[str]) -> list[str]:
    lines = [f"| field | {' | '.join(targets)} |", f"|---|{'---|' * len(targets)}"]
    for field in FIELDS:
        cells = [becomes(target, field) for target in targets]
        if set(cells) != {"-"}:
            lines.append(f"| `{field}` | {' | '.join(cells)} |")
    return lines


def part_table(targets: tuple[str, ...] | list[str]) -> list[str]:
    lines = [f"| part | {' | '.join(targets)} |", f"|---|{'---|' * len(targets)}"]
    for part in PARTS:
        cells = ["yes" if part in capabilities_of(target).parts else _untaken(part) for target in targets]
        lines.append(f"| {part.__name__.lower()} | {' | '.join(cells)} |")
    return lines


def _untaken(part: type[Part]) -> str:
    return {Reasoning: "left out", File: "if text"}.get(part, "-")


def named(fields: list[str]) -> str:
    return ", ".join(f"`{field}`" for field in fields)


def citation_table() -> list[str]:
    lines = [f"| source | {' | '.join(BODIES)} |", f"|---|{'---|' * len(BODIES)}"]
    for name, citation in CITATIONS.items():
        cells = ["yes" if cited(front, citation) != cited(front, None) else "dropped" for front in BODIES]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def cited(front: str, citation: Citation | None) -> object:
    """What a client reads of an answer of another dialect with this citation, or with none."""
    note = [] if citation is None else [AnnotationAdded(0, 0, b"{}", "another", (citation,))]
    return body_of(front, [TextDelta(0, 0, "So."), *note, ChoiceFinished(0, StopReason.STOP)])


def taken_by_no_target() -> list[str]:
    return [field for field in FIELDS if all(becomes(target, field) == "-" for target in TARGETS)]


def test_what_no_upstream_takes_the_local_engine_does() -> None:
    local = LocalProvider(ProviderSettings(name="local", type="local", options={"models": {"m": {"source": "x"}}}))

    assert set(taken_by_no_target()) <= local.capabilities("m").fields


def document() -> str:
    forwards = [
        f"| {target} | {', '.join(f'`{dialect}`' for dialect in sorted(capabilities_of(target).forwards)) or '-'} |"
        for target in TARGETS
    ]
    text = [
        "# Fields and targets",
        "",
        "What becomes of each field of a request, by its canonical name, at each type of provider. This file is",
        "written by `pytest tests/providers/test_field_table.py --update-golden`, which measures each cell. What a",
        "known model does not take is taken away from what its provider does (`providers/models/families`).",
        "",
        "| cell | meaning |",
        "|---|---|",
        "| yes | mapped: the upstream gets it |",
        "| some | mapped, with values that the upstream has a word for; another one is a 400 that names the field |",
        "| n calls | the upstream is asked once for each choice |",
        "| hint | says nothing about the answer, so nothing is sent; listed where it is not what the target does |",
        "| - | a 400 that names the field; with `unsupported_params: drop` left out, and listed in a header |",
        "",
        "## Dialects",
        "",
        *table(tuple(UPSTREAMS)),
        "",
        "## OpenAI-shaped vendors",
        "",
        *table(CHAT_VENDORS),
        "",
        f"Only the local engine maps {named(taken_by_no_target())};",
        "OpenAI-shaped vendors get them from clients of their own dialect as they came.",
        "",
        "## Parts of messages",
        "",
        "Thoughts that a target does not take are left out, files and documents whose bytes are UTF-8 become text; any",
        "other part that it does not take is a 400. Parts that only another dialect can read (opaque) are refused, or",
        "dropped and listed.",
        "",
        *part_table(tuple(UPSTREAMS)),
        "",
        *part_table(CHAT_VENDORS),
        "",
        "## Citations in answers",
        "",
        "What clients read of a citation that another dialect's provider made; in its own dialect it stays as it came.",
        "Places in the answer are counted in characters of its text (Gemini: in bytes; Messages: by the whole block).",
        "The place in the source is told in Messages alone, what stands there in Messages, in chat (`content`) and of",
        "documents in Gemini.",
        "",
        *citation_table(),
        "",
        "## Fields that are not mapped",
        "",
        "Unmapped fields of a client go through unchanged to a target of its own dialect; elsewhere they are refused",
        "by name, or dropped and listed.",
        "",
        "| target | forwards the unmapped fields of |",
        "|---|---|",
        *forwards,
        "",
    ]
    return "\n".join(text)


def test_the_table_in_the_documentation_says_what_is_so(update_golden: bool) -> None:
    found = document()
    if update_golden:
        DOCUMENT.write_text(found)
    assert DOCUMENT.read_text() == found, "run pytest tests/providers/test_field_table.py --update-golden"
