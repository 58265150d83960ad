"""How long a prompt is for the model that would answer it: the first target that can tell."""

from collections.abc import Sequence

from msgspec.structs import replace

from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.request import Request
from gateway.routing.names import Names
from gateway.routing.requirements import Spelling, fit
from gateway.routing.route import Target
from gateway.routing.router import Progress, Router
from providers.abilities import TokenCounter

__all__ = ["TokenCounts"]


class TokenCounts:
    def __init__(self, router: Router) -> None:
        self._router = router

    @property
    def names(self) -> Names:
        return self._router.names

    async def count(self, request: Request, progress: Progress, spell: Spelling) -> int:
        """The tokens of the prompt, templates and tools included.

        Raises UnsupportedParameter where no target of the model can count.
        """

        async def count(target: Target) -> Sequence[int]:
            provider = target.provider
            if not isinstance(provider, TokenCounter):
                raise UnsupportedParameter(
                    f"model: no provider of the model '{request.model}' can count tokens", param="model"
                )
            capabilities = provider.capabilities(target.model)
            fitted = fit(request, capabilities, spell, drop=target.drops_unsupported, completions_as_chat=False)
            progress.dropped = fitted.dropped
            return await provider.count_tokens(replace(fitted.request, model=target.model))

        return sum(await self._router.ask(request.model, progress, count))
