"""Several filters one behind the other, as one."""

from collections.abc import Sequence

from gateway.guardrails.guardrail import TextFilter

__all__ = ["FilterChain"]


class FilterChain:
    """For one text. Each filter raises ContentRefused."""

    __slots__ = ("_filters",)

    def __init__(self, filters: Sequence[TextFilter]) -> None:
        self._filters = filters

    async def feed(self, text: str) -> str:
        for one in self._filters:
            if text:
                text = await one.feed(text)
        return text

    async def finish(self) -> str:
        """What is held back: each filter's rest goes through those after it."""
        text = ""
        for one in self._filters:
            text = (await one.feed(text) if text else "") + await one.finish()
        return text

    async def whole(self, text: str) -> str:
        """What becomes of a text that is known to its end."""
        return await self.feed(text) + await self.finish()
