"""The Jinja environment that chat templates run in: the filters and globals that they expect, inside bounds.

A template is a program that came with a model, or with a request. It is kept from Python's internals by Jinja's
immutable sandbox, and from running away by a count of loop steps and the size of what it builds and gives.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jinja2 import Template, nodes, pass_context
from jinja2.exceptions import TemplateRuntimeError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

__all__ = ["RunawayTemplate", "TemplateRaised", "TemplateSandbox", "rendered"]

MAX_STEPS = 1_000_000
"""Loop iterations of one rendering: about a second."""
MAX_CHARS = 64 * 1024 * 1024
"""Of the output, and of any string or list that an operator makes. A request's body is not larger by default."""
MAX_POWER = 4096

_BUDGET = "\0budget"
"""Where the counter lies among the variables; like the next two, a name that no template can write."""
_STEP = "\0step"
_JOIN = "\0join"


class RunawayTemplate(TemplateRuntimeError):
    """The template ran past a bound."""


class TemplateRaised(TemplateRuntimeError):
    """The template called `raise_exception`."""


@dataclass(slots=True)
class _Budget:
    steps: int = MAX_STEPS


class _GenerationBlock(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; here its content is rendered as it stands."""

    tags = {"generation"}  # noqa: RUF012 - declared so by Jinja

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Counted(NodeTransformer):
    """Puts a step at the head of every loop's body and condition, and lets `~` go through a bounded join.

    Both are filters: the compiled template calls those directly, while a call takes the sandbox's longer way.
    """

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - the visitor's naming
        self.generic_visit(node)
        step = nodes.Filter(nodes.Const(1), _STEP, [], [], None, None)
        node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
        if node.test is not None:
            node.test = nodes.And(nodes.Not(step), node.test)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        first, *others = node.nodes
        return nodes.Filter(first, _JOIN, others, [], None, None)


@pass_context
def _count_step(context: Context, steps: int) -> None:
    budget: _Budget = context.parent[_BUDGET]
    budget.steps -= steps
    if budget.steps < 0:
        raise RunawayTemplate(f"more than {MAX_STEPS} loop steps")


@pass_context
def _counted_range(context: Context, *arguments: int) -> range:
    """A range costs its length, since filters walk over it unseen."""
    numbers = range(*arguments)
    _count_step(context, len(numbers))
    return numbers


def _bounded_join(*values: Any) -> str:
    """What `~` gives."""
    texts = [str(value) for value in values]
    _bound(sum(map(len, texts)))
    return "".join(texts)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """One for all templates; `clock` is what `strftime_now` reads."""

    intercepted_binops = frozenset({"+", "*", "**"})

    def __init__(self, clock: Callable[[], datetime]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols])
        self.filters["tojson"] = _to_json
        self.filters[_STEP] = _count_step
        self.filters[_JOIN] = _bounded_join
        self.globals["range"] = _counted_range
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda format: clock().strftime(format)
        del self.globals["lipsum"]

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Counted().visit(tree)
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and isinstance(right, int | float) and abs(right) > MAX_POWER:
            raise RunawayTemplate("a power is too large")
        if operator == "+":
            _bound(_length(left) + _length(right))
        if operator == "*" and isinstance(left, int) != isinstance(right, int):
            _bound(_length(left) * right if isinstance(right, int) else _length(right) * left)
        return super().call_binop(context, operator, left, right)


def rendered(template: Template, variables: Mapping[str, Any]) -> str:
    """The template's output with a fresh budget. Raises whatever the template raises."""

    def pieces() -> Iterator[str]:
        total_chars = 0
        for piece in template.generate({**variables, _BUDGET: _Budget()}):
            total_chars += len(piece)
            _bound(total_chars)
            yield piece

    return "".join(pieces())


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple) else 0


def _bound(length: int) -> None:
    if length > MAX_CHARS:
        raise RunawayTemplate(f"more than {MAX_CHARS} characters or items")


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as templates were written against: in the given order, not escaped for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise TemplateRaised(message)
