"""How long a prompt is for the model that would answer it: the first target that can tell."""

import asyncio

from msgspec.structs import replace

from adapters.canonical.errors import GatewayError, NotReady, UnsupportedParameter, UpstreamTimeout
from adapters.canonical.request import Request
from gateway.routing.names import Names
from gateway.routing.requirements import Spelling, fit
from gateway.routing.router import Progress
from providers.abilities import TokenCounter

__all__ = ["TokenCounts"]


class TokenCounts:
    """`total_s` bounds a count over all targets together."""

    def __init__(self, names: Names, *, total_s: float) -> None:
        self.names = names
        self._total_s = total_s

    async def count(self, request: Request, progress: Progress, spell: Spelling) -> int:
        """The tokens of the prompt, templates and tools included.

        Raises UnsupportedParameter where no target of the model can count.
        """
        try:
            async with asyncio.timeout(self._total_s):
                return await self._count(request, progress, spell)
        except TimeoutError as error:
            raise UpstreamTimeout(f"the tokens were not counted within {self._total_s:g} s") from error

    async def _count(self, request: Request, progress: Progress, spell: Spelling) -> int:
        route = await self.names.resolve(request.model)
        if not route.targets:
            raise NotReady(f"no provider of the model '{request.model}' is switched on")
        failure: GatewayError | None = None
        for target in route.targets:
            provider = target.provider
            if not isinstance(provider, TokenCounter):
                continue
            capabilities = provider.capabilities(target.model)
            try:
                fitted = fit(request, capabilities, spell, drop=target.drops_unsupported, completions_as_chat=False)
                progress.target, progress.dropped = target, fitted.dropped
                progress.attempts += 1
                return sum(await provider.count_tokens(replace(fitted.request, model=target.model)))
            except GatewayError as error:
                if not error.fails_over:
                    raise
                failure = error
        raise failure or UnsupportedParameter(
            f"model: no provider of the model '{request.model}' can count tokens", param="model"
        )
