"""Whether a target can express a request (law 8). The only place that decides what is refused, dropped or converted
(of messages in `message_parts`).

Nothing is dropped in silence: a field that the target does not declare is refused by the client's own name for it, or,
where run.yaml says `unsupported_params: drop`, dropped and listed. A hint is always dropped and listed. What a
message says (its parts) is never dropped; what a model thought before it spoke goes only to targets that take thoughts.
"""

from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from adapters.canonical.errors import GatewayError, InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import (
    EXPRESSIBLE_FIELDS,
    LoraAdapter,
    OutputFormat,
    Request,
    Tool,
    set_fields,
    without_fields,
)
from adapters.canonical.tool_kinds import CUSTOM, FUNCTION
from adapters.field_names import FIELD_NAMES
from adapters.hints import HINTS
from adapters.nearest_name import nearest
from adapters.openai.aliases import resolved
from adapters.openai.response_format import FORMAT_TYPES
from gateway.routing.asked_fields import (
    THINKING,
    asks_nothing,
    unsupported_fields,
    wants_no_thoughts,
    wants_thoughts,
)
from gateway.routing.fitting import Fitting, Spelling
from gateway.routing.message_parts import fit_message_extras, fit_parts
from gateway.routing.route import Target
from gateway.routing.schema_limits import unenforced, without_unenforced
from providers.base import Capabilities
from providers.custom_tools import as_function, custom_names, grammar_of, grammar_place, with_function_calls

__all__ = ["Fitted", "fit", "fit_target", "in_client_words"]

E = TypeVar("E", bound=GatewayError)
_FORMAT_KINDS = frozenset((*FORMAT_TYPES, "choice"))
_SHOWN = 40
"""Characters of a client's word in a message."""


class Fitted(Struct, frozen=True):
    """A request as the target gets it, and the client's names of what was left out."""

    request: Request
    dropped: tuple[str, ...] = ()


def fit(
    request: Request, capabilities: Capabilities, spell: Spelling, *, drop: bool, completions_as_chat: bool
) -> Fitted:
    """The request without what the target cannot express. Raises UnsupportedParameter, naming the client's field."""
    asked = request
    fitting = Fitting(request, capabilities, spell)
    if not fitting.is_native:
        request = resolved(request)
    request = formed = _in_form(request, capabilities, spell, completions_as_chat)
    if request.messages is not None:
        request = fit_parts(request, request.messages, fitting)
    request = _fit_fields(request, fitting)
    if not fitting.is_native:
        if request.extras:
            for name, raw in request.extras.items():
                fitting.leave_out(name, raw, name)
            request = replace(request, extras={})
        if request.max_tokens is not None:
            request = _fit_length(request, request.max_tokens, capabilities)
    if request.tools is not None:
        request = _fit_tools(request, request.tools, fitting)
    if request.output_format is not None and not fitting.is_native:
        request = _fit_format(request, request.output_format, fitting)
    if request.messages is not None:
        request = fit_message_extras(request, request.messages, fitting)
    dropped = fitting.dropped
    if dropped and not drop:
        beside = {spell(name) for name in _not_beside_thoughts(formed, fitting)}
        why = " while it thinks" if beside.issuperset(dropped) else ""
        told = f"{', '.join(dropped)}: not supported by the model '{asked.model}'{why}"
        raise UnsupportedParameter(told + _advice(asked, fitting), param=dropped[0])
    return Fitted(request, (*dropped, *fitting.hints))


def _fit_fields(request: Request, fitting: Fitting) -> Request:
    """The request without the fields that the target lacks, or takes no thoughts beside."""
    capabilities = fitting.capabilities
    unsupported = unsupported_fields(request, capabilities.fields)
    if capabilities.always_thinks and not fitting.is_native:
        asked_not_to = [name for name in THINKING if wants_no_thoughts(request, name)]
        unsupported = [*unsupported, *(name for name in asked_not_to if name in capabilities.fields)]
    if capabilities.not_while_thinking:
        unsupported = [*unsupported, *_not_beside_thoughts(request, fitting)]
    if not unsupported:
        return request
    for name in unsupported:
        if not (asks_nothing(request, name) or (not capabilities.thinks and wants_no_thoughts(request, name))):
            (fitting.hints if name in HINTS else fitting.dropped).append(_spelled(request, name, fitting.spell))
    return without_fields(request, unsupported)


def _not_beside_thoughts(request: Request, fitting: Fitting) -> list[str]:
    """What was set beside the wish for thoughts and excludes them. A client of the target's own dialect knows that."""
    if fitting.is_native or not wants_thoughts(request):
        return []
    excluded = fitting.capabilities.not_while_thinking & fitting.capabilities.fields
    return [name for name in set_fields(request) if name in excluded]


def _advice(request: Request, fitting: Fitting) -> str:
    """What the client may have meant: a field that is spelled otherwise, or one of the forms that the target has."""
    dropped = fitting.dropped
    known = FIELD_NAMES.get(request.dialect, ())
    near = {name: nearest(name, known) for name in dropped if name in request.extras and name not in known}
    meant = [f"'{found}' for '{name}'" for name, found in near.items() if found is not None]
    if len(dropped) == 1 and meant:
        return f", did you mean '{near[dropped[0]]}'?"
    if meant:
        return f", did you mean {', '.join(meant)}?"
    wanted = request.output_format
    if wanted is not None and wanted.kind not in _FORMAT_KINDS and not fitting.is_native:
        return f": expected one of the types {', '.join(FORMAT_TYPES)}, got {wanted.kind[:_SHOWN]}"
    return ""


def fit_target(request: Request, target: Target, spell: Spelling, *, completions_as_chat: bool) -> Fitted:
    """The same for a target, in its provider's names. Raises InvalidRequest for an adapter on top of an adapter."""
    fitted = fit(
        request,
        target.provider.capabilities(target.model),
        spell,
        drop=target.drops_unsupported,
        completions_as_chat=completions_as_chat,
    )
    asked = fitted.request
    if target.adapter is None:
        return fitted if asked.model == target.model else Fitted(replace(asked, model=target.model), fitted.dropped)
    if asked.adapter is not None:
        raise InvalidRequest.at(spell("adapter"), f"the model '{request.model}' names an adapter already")
    return Fitted(replace(asked, model=target.model, adapter=LoraAdapter(name=target.adapter)), fitted.dropped)


def in_client_words(error: E, spell: Spelling) -> E:
    """A target's error, with the field that it names called as the client calls it."""
    named = error.param
    if isinstance(error, InvalidRequest) and named in EXPRESSIBLE_FIELDS:
        error.param = spell(named)
        if error.message.startswith(f"{named}:"):
            error.message = error.param + error.message.removeprefix(named)
    return error


def _spelled(request: Request, name: str, spell: Spelling) -> str:
    """The field as the client called it; a format of the answer has several names."""
    own = request.output_format.field if name == "output_format" and request.output_format is not None else None
    return own or spell(name)


def _in_form(request: Request, capabilities: Capabilities, spell: Spelling, completions_as_chat: bool) -> Request:
    """Messages for a target that takes messages, prompts for one that takes prompts."""
    if request.prompts is None:
        if not capabilities.messages:
            param = spell("messages")
            raise UnsupportedParameter.at(param, f"the model '{request.model}' {_takes(capabilities)}")
        return request
    if capabilities.prompts:
        return request
    param = spell("prompts")
    if not completions_as_chat or not capabilities.messages:
        raise UnsupportedParameter.at(param, f"the model '{request.model}' {_takes(capabilities)}")
    if len(request.prompts) != 1 or not isinstance(request.prompts[0], str):
        raise UnsupportedParameter.at(
            param, f"the model '{request.model}' takes chat messages only, so expected one text"
        )
    message = Message(role=USER, parts=(Text(text=request.prompts[0]),))
    return replace(request, prompts=None, messages=(message,))


def _takes(capabilities: Capabilities) -> str:
    """What a target takes that got something else."""
    if capabilities.messages:
        return "takes chat messages only"
    return "takes plain prompts only" if capabilities.prompts else "does not generate text"


def _fit_length(request: Request, asked: int, capabilities: Capabilities) -> Request:
    """A bound beyond the longest answer of the model bounds nothing more, but many an API refuses it."""
    longest = capabilities.max_output
    return request if longest is None or asked <= longest else replace(request, max_tokens=longest)


def _fit_tools(request: Request, tools: tuple[Tool, ...], fitting: Fitting) -> Request:
    kept: list[Tool] = []
    capabilities, dropped = fitting.capabilities, fitting.dropped
    kinds = capabilities.tool_kinds
    for index, tool in enumerate(tools):
        path = f"{fitting.spell('tools')}[{index}]" if request.tool_paths is None else request.tool_paths[index]
        if tool.kind == CUSTOM and CUSTOM not in kinds and FUNCTION in kinds:
            if grammar_of(tool) is not None:  # told to the model, but not held to
                dropped.append(f"{path}.{grammar_place(request.dialect)}")
            tool = replace(as_function(tool), grammar=None)
        if tool.kind not in kinds or (tool.raw is not None and not fitting.is_native):
            dropped.append(path)
            continue
        foreign = fitting.foreign(tool.extras)
        for name, raw in foreign.items():
            fitting.leave_out(f"tools[].{name}", raw, f"{path}.{name}")
        fitted = replace(tool, extras=None) if foreign else tool
        if tool.strict and not capabilities.strict_tools:
            dropped.append(f"{path}.strict")
            fitted = replace(fitted, strict=None)
        elif tool.strict and tool.parameters is not None and not fitting.is_native:
            loose = unenforced(tool.parameters, capabilities.schema_lacks)
            if loose:
                dropped += [f"{path}.parameters.{name}" for name in loose]
                parameters = without_unenforced(tool.parameters, capabilities.schema_lacks)
                fitted = replace(fitted, parameters=parameters)
        kept.append(fitted)
    if kept == list(tools):
        return request
    request = replace(request, tool_paths=None)  # all that was to be said of them was said
    if CUSTOM not in kinds and custom_names(request):
        request = _without_custom(request)
    if not kept:
        return replace(request, tools=None, tool_choice=None)
    choice = request.tool_choice
    if choice is not None and choice.name is not None and not any(tool.name == choice.name for tool in kept):
        return replace(request, tools=tuple(kept), tool_choice=None)
    return replace(request, tools=tuple(kept))


def _without_custom(request: Request) -> Request:
    """The request with functions in place of custom tools, but for their declarations."""
    choice = request.tool_choice
    if choice is not None and choice.kind == CUSTOM:
        choice = replace(choice, kind=FUNCTION)
    messages = None if request.messages is None else with_function_calls(request.messages)
    return replace(request, messages=messages, tool_choice=choice)


def _fit_format(request: Request, wanted: OutputFormat, fitting: Fitting) -> Request:
    """The form of the answer, as far as the target holds its answers to it."""
    capabilities, dropped = fitting.capabilities, fitting.dropped
    path = wanted.field or fitting.spell("output_format")
    formats = capabilities.output_formats
    if wanted.kind not in (_FORMAT_KINDS if formats is None else formats):
        dropped.append(path)
        return replace(request, output_format=None)
    if wanted.unmapped:
        dropped += [f"{path}.{option}" for option in wanted.unmapped]
        wanted = replace(wanted, unmapped=())
    if wanted.whitespace is not None and "grammar" not in (formats or ()):  # no dialect has a word for it
        dropped.append(f"{path}.whitespace_pattern")
        wanted = replace(wanted, whitespace=None)
    if wanted.kind == "json_schema" and wanted.schema is not None:
        loose = unenforced(wanted.schema, capabilities.schema_lacks)
        if loose:
            dropped += [f"{wanted.path or f'{path}.schema'}.{name}" for name in loose]
            schema = without_unenforced(wanted.schema, capabilities.schema_lacks)
            wanted = replace(wanted, schema=schema)
    return request if wanted is request.output_format else replace(request, output_format=wanted)
