"""All guardrails of run.yaml, in their order, around the router's stream."""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.request import Request
from gateway.config.sections.section import revealed
from gateway.config.sections.tools import Guardrail as Section
from gateway.extensions import build_extension
from gateway.guardrails import ability_texts
from gateway.guardrails.chain import FilterChain
from gateway.guardrails.guardrail import Guardrail, Subject
from gateway.guardrails.output import filtered
from gateway.guardrails.regex import RegexGuardrail
from gateway.guardrails.request_texts import texts_of, with_texts
from gateway.guardrails.webhook import WebhookGuardrail
from providers.base import Batch

__all__ = ["ENTRY_POINT_GROUP", "Guardrails", "build_guardrails"]

ENTRY_POINT_GROUP = "llm_gateway.guardrails"
A = TypeVar("A", bound=ability_texts.HasTexts)
_OF_TOKENS = ("logprobs", "return_token_ids")


@dataclass(frozen=True, slots=True)
class Guardrails:
    """Those of either direction. Whoever built it closes it."""

    inputs: tuple[Guardrail, ...] = ()
    outputs: tuple[Guardrail, ...] = ()

    async def checked(self, request: Request, subject: Subject, spell: Callable[[str], str]) -> Request:
        """The request as it may be sent on. Raises ContentRefused, or UnsupportedParameter for what would tell the
        tokens of texts that are filtered."""
        for name in _OF_TOKENS if self.outputs else ():
            asked = getattr(request, name)
            if asked is not None and asked is not False:
                param = spell(name)
                why = f"{param}: not with guardrails on the output, since tokens would tell what they take away"
                raise UnsupportedParameter(why, param=param)
        before = texts_of(request) if self.inputs else []
        texts = await self.checked_texts(before, subject)
        return with_texts(request, texts) if texts != before else request

    async def checked_ability(self, request: A, subject: Subject) -> A:
        """The same of a request for vectors or ranks, which has no output in words. Raises ContentRefused."""
        before = ability_texts.texts_of(request) if self.inputs else []
        texts = await self.checked_texts(before, subject)
        return ability_texts.with_texts(request, texts) if texts != before else request

    async def checked_texts(self, texts: list[str], subject: Subject) -> list[str]:
        """The same of any texts. Raises ContentRefused."""
        if texts:
            for guardrail in self.inputs:
                texts = list(await guardrail.check_input(texts, subject))
        return texts

    def around(
        self, batches: AsyncGenerator[Batch, None], subject: Subject, num_choices: int
    ) -> AsyncGenerator[Batch, None]:
        """The answer as it may be passed on."""
        if not self.outputs:
            return batches

        return filtered(batches, partial(self.output_filters, subject), num_choices)

    async def checked_tool_output(self, text: str, subject: Subject) -> str:
        """What a tool of the gateway gave, as the model and the client may see it. Raises ContentRefused."""
        (text,) = await self.checked_texts([text], subject)
        return await self.output_filters(subject).whole(text)

    def output_filters(self, subject: Subject) -> FilterChain:
        """For one text that comes out."""
        return FilterChain([guardrail.output_filter(subject) for guardrail in self.outputs])

    async def aclose(self) -> None:
        for guardrail in {id(one): one for one in (*self.inputs, *self.outputs)}.values():
            await guardrail.aclose()


def build_guardrails(sections: Sequence[Section]) -> Guardrails | None:
    """None: there are none. Raises ValueError for one that no package brings, or whose options can't work."""
    if not sections:
        return None
    built = [(_build(section, index), section.on) for index, section in enumerate(sections)]
    return Guardrails(
        tuple(one for one, on in built if "input" in on), tuple(one for one, on in built if "output" in on)
    )


def _build(section: Section, index: int) -> Guardrail:
    if section.regex is not None:
        return RegexGuardrail(section.regex, section.replace, max_length=section.max_length)
    if section.webhook is not None:
        return WebhookGuardrail(section.webhook, revealed(section.headers))
    assert section.use is not None
    path = f"guardrails[{index}]"
    made: Guardrail = build_extension(ENTRY_POINT_GROUP, section.use, section.options, what="a guardrail", path=path)
    return made
