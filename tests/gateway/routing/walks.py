"""A router over scripted targets, with a clock that a test moves, and what its observer saw."""

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from adapters.canonical.events import ChoiceFinished, Started, TextDelta
from adapters.canonical.messages import Message, Text
from adapters.canonical.request import Request
from adapters.canonical.stop_reason import StopReason
from gateway.routing.attempt import Attempt
from gateway.routing.breaker import BreakerRules
from gateway.routing.conditions import Conditions
from gateway.routing.health import Health
from gateway.routing.names import ModelLists, Names, ProviderRules
from gateway.routing.progress import Progress
from gateway.routing.route import Route, Target
from gateway.routing.router import Router, RoutingRules
from providers.base import Batch
from providers.testing.scripted import Script, ScriptedProvider

FINISH = ChoiceFinished(0, StopReason.STOP)
RULES = RoutingRules(attempts=1, breaker=BreakerRules(failures=2, window_s=30, open_s=10))


def good(text: str = "good") -> list[Batch]:
    return [[Started(id="1")], [TextDelta(0, 0, text)], [FINISH]]


def scripted(name: str, *scripts: Script, tags: tuple[str, ...] = (), when: Conditions | None = None) -> Target:
    """A target; without a script it says its name."""
    return Target(ScriptedProvider(name, *(scripts or (good(name),))), "m", tags=frozenset(tags), when=when)


def provider_of(target: Target) -> ScriptedProvider:
    assert isinstance(target.provider, ScriptedProvider)
    return target.provider


def asked_of(target: Target) -> int:
    """How many requests came to it."""
    return len(provider_of(target).requests)


def request(**fields: object) -> Request:
    messages = (Message(role="user", parts=(Text(text="hi"),)),)
    return Request(**{"model": "alias", "dialect": "chat", "messages": messages, **fields})  # type: ignore[arg-type]


@dataclass
class Walks:
    """`now` is the router's time; `began` and `ended` are the attempts that its observer was told of."""

    route: Route
    rules: RoutingRules = RULES
    draw: Callable[[], float] = lambda: 0.5
    now: float = 0.0
    faults: list[BaseException] = field(default_factory=list)
    starts: list[Attempt] = field(default_factory=list)
    ends: list[Attempt] = field(default_factory=list)

    def __post_init__(self) -> None:
        targets = self.route.answering
        providers = {target.provider.name: ProviderRules(target.provider) for target in targets}
        lists = ModelLists({name: each.provider for name, each in providers.items()}, lambda: 0.0)
        self.health = Health(self.rules.breaker, lambda: self.now)
        self.router = Router(
            Names(providers, {"alias": self.route}, lists),
            self.rules,
            lambda: self.draw(),
            clock=lambda: self.now,
            health=self.health,
            observer=self,
            fault=self.faults.append,
        )

    def began(self, attempt: Attempt) -> None:
        self.starts.append(attempt)

    def ended(self, attempt: Attempt) -> None:
        self.ends.append(attempt)

    async def run(self, asked: Request | None = None, progress: Progress | None = None) -> str:
        """The text of the answer."""
        texts: list[str] = []
        async with aclosing(self.router.stream(asked or request(), progress or Progress(), str)) as batches:
            async for batch in batches:
                texts += [event.text for event in batch if isinstance(event, TextDelta)]
        return "".join(texts)

    def ways(self) -> list[tuple[str, str, str]]:
        """Of every attempt that ended: whom it asked, why, and what became of it."""
        return [(each.target.provider.name, each.kind.value, each.outcome.value) for each in self.ends]


def walks(*targets: Target, rules: RoutingRules = RULES, **options: object) -> Walks:
    """`options` are those of the route."""
    return Walks(Route(targets, **options), rules)  # type: ignore[arg-type]
