"""A model's chat template: messages as dicts in, the prompt's text out.

Owns finding the template in a model's files, compiling it once, rendering it, and what can be learned from its syntax
tree. Knows no canonical types; template_messages.py makes the dicts. A template's own text is never shown to a client.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

from jinja2 import TemplateSyntaxError, meta, nodes

from adapters.canonical.errors import InvalidRequest
from providers.local.gguf_tokenizer import read_metadata
from providers.local.template_sandbox import RunawayTemplate, TemplateSandbox, rendered

__all__ = ["ChatTemplate", "ContentForm", "TemplateRefusal", "load_chat_template", "request_template"]

ContentForm = Literal["text", "parts", "either"]

_TOOL_USE = "tool_use"
_MAX_REQUEST_TEMPLATE = 1 << 16


class TemplateRefusal(InvalidRequest):
    """The template does not take this conversation. `index` is the first message that it refuses, where that is known.

    What the template itself said is chained for the log and never part of the message.
    """

    def __init__(self, reason: str, *, index: int | None) -> None:
        where = "messages" if index is None else f"messages[{index}]"
        super().__init__(f"{where}: {reason}", param=where, code="chat_template")
        self.reason = reason
        self.index = index

    def moved_to(self, index: int) -> "TemplateRefusal":
        """The same, of another index: the one that the message has in the client's list."""
        return TemplateRefusal(self.reason, index=index)


class ChatTemplate:
    """A compiled template. `for_tools` is the model's other template for requests with tools, where it has one.

    Safe to render from several threads. Raises InvalidRequest for a source that is no valid template.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str = "",
        eos_token: str = "",
        for_tools: "ChatTemplate | None" = None,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self.for_tools = for_tools
        self._special_tokens = {"bos_token": bos_token, "eos_token": eos_token}
        sandbox = TemplateSandbox(clock)
        try:
            self._template = sandbox.from_string(source)
            self._tree = sandbox.parse(source)
        except TemplateSyntaxError as error:
            raise InvalidRequest(
                f"the chat template is not valid: line {error.lineno}", param="chat_template"
            ) from error
        except RecursionError as error:
            raise InvalidRequest("the chat template is nested too deeply", param="chat_template") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt. `kwargs` are further variables of the template. Raises TemplateRefusal.

        Blocks for about 10 us a message; one that is refused is rendered some times more to find the message at fault.
        """
        variables = {
            **self._special_tokens,
            "documents": None,
            **(kwargs or {}),
            "tools": list(tools) if tools else None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return rendered(self._template, {**variables, "messages": list(messages)})
        except RunawayTemplate as error:
            raise TemplateRefusal(f"the model's chat template does not end: {error.message}", index=None) from error
        except Exception as error:  # a foreign program may fail in any way
            index = self._first_refused(messages, variables)
            raise TemplateRefusal(_refusal(messages, index), index=index) from error

    def _first_refused(self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> int | None:
        """A message up to which the conversation is refused while it is taken without it; found by halving."""
        taken, refused = 0, len(messages)
        while refused - taken > 1:
            middle = (taken + refused) // 2
            try:
                rendered(self._template, {**variables, "messages": list(messages[:middle])})
                taken = middle
            except Exception:  # as in render
                refused = middle
        return refused - 1 if messages else None

    @cached_property
    def variables(self) -> frozenset[str]:
        """The names that the template reads and does not set itself (`tools`, `enable_thinking`, ...)."""
        return frozenset(meta.find_undeclared_variables(self._tree))

    @property
    def knows_tools(self) -> bool:
        return "tools" in self.variables

    @cached_property
    def _constants(self) -> frozenset[str]:
        return frozenset(node.value for node in self._tree.find_all(nodes.Const) if isinstance(node.value, str))

    @cached_property
    def _attributes(self) -> frozenset[str]:
        return frozenset(node.attr for node in self._tree.find_all(nodes.Getattr))

    def knows_role(self, role: str) -> bool:
        """Whether the template names the role, rather than writing out whatever role it is given."""
        return role in self._constants

    @cached_property
    def part_kinds(self) -> frozenset[str]:
        """Among other words, the kinds of parts that the template has a place for and does not pass over."""
        return frozenset() if self.content_form == "text" else self._constants

    def mentions(self, text: str) -> bool:
        """Whether the template writes this text, or looks for it."""
        return any(text in constant for constant in self._constants) or any(
            text in node.data for node in self._tree.find_all(nodes.TemplateData)
        )

    def reads_field(self, name: str) -> bool:
        """Whether the template looks at this field of something (`message.tool_calls`)."""
        return name in self._constants or name in self._attributes

    @cached_property
    def content_form(self) -> ContentForm:
        """What the template takes as a message's content: a text, a list of parts, or either."""
        contents = {"content"} | {
            assign.target.name
            for assign in self._tree.find_all(nodes.Assign)
            if isinstance(assign.target, nodes.Name) and _is_content(assign.node, frozenset())
        }
        if not any(_is_content(loop.iter, contents) for loop in self._tree.find_all(nodes.For)):
            return "text"
        return "either" if any(test.name == "string" for test in self._tree.find_all(nodes.Test)) else "parts"


def _is_content(expression: nodes.Node, names: frozenset[str] | set[str]) -> bool:
    """Whether it is `x.content`, `x["content"]` or one of `names`, perhaps filtered."""
    while isinstance(expression, nodes.Filter) and expression.node is not None:
        expression = expression.node
    match expression:
        case nodes.Getattr(attr="content"):
            return True
        case nodes.Getitem(arg=nodes.Const(value="content")):
            return True
        case nodes.Name(name=name):
            return name in names
        case _:
            return False


def _refusal(messages: Sequence[Mapping[str, Any]], index: int | None) -> str:
    if index is None:
        return "the model's chat template takes no empty conversation"
    role = messages[index].get("role")
    before = f" after {messages[index - 1].get('role')}" if index else " as the first message"
    return f"the model's chat template does not take this {role} message{before}"


@lru_cache(maxsize=32)
def request_template(source: str, bos_token: str, eos_token: str) -> ChatTemplate:
    """A template that a request brought, compiled once for many of them. Raises InvalidRequest."""
    if len(source) > _MAX_REQUEST_TEMPLATE:
        raise InvalidRequest.at("chat_template", f"more than {_MAX_REQUEST_TEMPLATE} characters")
    return ChatTemplate(source, bos_token=bos_token, eos_token=eos_token)


def load_chat_template(
    path: Path, *, bos_token: str, eos_token: str, clock: Callable[[], datetime] = datetime.now
) -> ChatTemplate | None:
    """The chat template in a .gguf file or a model's folder; None if it has none. Blocks."""
    sources = _folder_sources(path) if path.is_dir() else _gguf_sources(path)
    default = sources.get("default") or sources.get(_TOOL_USE)
    if default is None:
        return None
    for_tools = None
    if _TOOL_USE in sources and "default" in sources:
        for_tools = ChatTemplate(sources[_TOOL_USE], bos_token=bos_token, eos_token=eos_token, clock=clock)
    return ChatTemplate(default, bos_token=bos_token, eos_token=eos_token, for_tools=for_tools, clock=clock)


def _gguf_sources(path: Path) -> dict[str, str]:
    """`tokenizer.chat_template` is the default one, `tokenizer.chat_template.NAME` another."""
    key = "tokenizer.chat_template"
    sources = {}
    for name, value in read_metadata(path).items():
        if isinstance(value, str) and (name == key or name.startswith(f"{key}.")):
            sources[name.removeprefix(key).lstrip(".") or "default"] = value
    return sources


def _folder_sources(folder: Path) -> dict[str, str]:
    """By name. A .jinja file goes before what the .json files say."""
    sources: dict[str, str] = {}
    for name in ("chat_template.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            sources |= _json_sources(folder / name)
    for file in (folder / "additional_chat_templates").glob("*.jinja"):
        sources[file.stem] = file.read_text(encoding="utf-8")
    if (folder / "chat_template.jinja").is_file():
        sources["default"] = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    return sources


def _json_sources(file: Path) -> dict[str, str]:
    """`chat_template` is one template, or a list of {name, template}."""
    try:
        entry = json.loads(file.read_bytes()).get("chat_template")
        if isinstance(entry, list):
            return {str(item["name"]): str(item["template"]) for item in entry}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InvalidRequest(f"{file}: chat_template cannot be read", param="chat_template") from error
    return {"default": entry} if isinstance(entry, str) else {}
