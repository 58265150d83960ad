"""What a name stands for: targets, in which order they are asked, and where else to go when they fail."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from adapters.canonical.errors import GatewayError
from adapters.canonical.request import Request
from gateway.routing.conditions import Conditions
from gateway.routing.defaults import Defaults, bounded
from providers.base import Provider

__all__ = ["Asked", "Detours", "Route", "Shadow", "Strategy", "Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """One model of one provider. `model` is the provider's own name, `adapter` a LoRA on top of it."""

    provider: Provider
    model: str
    adapter: str | None = None
    drops_unsupported: bool = False
    """Fields that it cannot express are dropped and listed, where otherwise they are refused by name."""
    weight: float = 1.0
    tags: frozenset[str] = frozenset()
    when: Conditions | None = None
    """Of the requests that it is for; None: of all."""

    @property
    def label(self) -> str:
        return f"{self.provider.name}/{self.model}"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a strategy may know of a request. `affinity` gives the text that requests share which should go to the same
    target; None: there is none."""

    stream: bool
    affinity: Callable[[], str | None]


Detours = Mapping[type[GatewayError], tuple[Target, ...]]
"""Where a request goes on that fails with this error: ContextOverflow or ContentRefused."""


class Strategy(Protocol):
    def order(self, targets: Sequence[Target], asked: Asked) -> Sequence[Target]:
        """All of them, in the order in which they are asked for this request."""
        ...


@dataclass(frozen=True, slots=True)
class Shadow:
    """`share` (0 to 1) of the answered requests are sent to the target as well; its answers go nowhere."""

    target: Target
    share: float


@dataclass(frozen=True, slots=True)
class Route:
    """`targets` in the order of run.yaml; `strategy` None: that is the order in which they are asked.

    `hedge_s` seconds without output let the next target be asked as well; 0: never. `max_tokens` bounds each answer,
    whatever is asked for; None: nothing does.
    """

    targets: tuple[Target, ...]
    defaults: Defaults | None = None
    strategy: Strategy | None = None
    on_failure: tuple[Target, ...] = ()
    detours: Detours | None = None
    shadow: Shadow | None = None
    hedge_s: float = 0.0
    max_tokens: int | None = None
    has_tags: bool = field(init=False)
    has_conditions: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "has_tags", any(target.tags for target in self.targets))
        object.__setattr__(self, "has_conditions", any(target.when is not None for target in self.targets))

    def shaped(self, request: Request) -> Request:
        """The request with what the name adds to it, and within its bound."""
        if self.defaults is not None:
            request = self.defaults.apply(request)
        return request if self.max_tokens is None else bounded(request, self.max_tokens)

    @property
    def answering(self) -> tuple[Target, ...]:
        """Those that may answer any request."""
        return self.targets + self.on_failure if self.on_failure else self.targets
