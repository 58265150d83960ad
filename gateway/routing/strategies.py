"""In which order the targets of a name are asked. One small object a strategy; each gives a permutation.

Who is left out because it fails is not decided here (`gateway.routing.attempts`): the next in the order takes over.
"""

import hashlib
import math
from collections.abc import Callable, Sequence

from gateway.routing.health import Health
from gateway.routing.route import Asked, Target

__all__ = ["Latency", "LeastBusy", "Sticky", "Weighted"]

Random = Callable[[], float]
"""From 0 to 1, 1 excluded."""


class Weighted:
    """The first one by chance, each with its share of the weights; then the others, the same way."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def order(self, targets: Sequence[Target], asked: Asked) -> Sequence[Target]:
        # The smallest of exponential variables with these rates is each with the probability of its weight.
        return _by(targets, [_exponential(self._random()) / target.weight for target in targets])


class LeastBusy:
    """Fewest calls in flight for its weight first; of equals, one by chance."""

    def __init__(self, health: Health, random: Random) -> None:
        self._health = health
        self._random = random

    def order(self, targets: Sequence[Target], asked: Asked) -> Sequence[Target]:
        return _by(targets, [(self._health.of(each).in_flight / each.weight, self._random()) for each in targets])


class Latency:
    """The shortest mean time to first output first. One of which nothing is known comes before all, and now and then
    (`EXPLORED`) any other does, so that a target that became faster is noticed."""

    EXPLORED = 0.05
    """Share of the requests."""

    def __init__(self, health: Health, random: Random, clock: Callable[[], float]) -> None:
        self._health = health
        self._random = random
        self._clock = clock

    def order(self, targets: Sequence[Target], asked: Asked) -> Sequence[Target]:
        now = self._clock()
        means = [self._health.of(target).ttft[asked.stream].mean(now) for target in targets]
        keys = [(-1.0 if mean is None else mean, self._random()) for mean in means]
        if self._random() < self.EXPLORED:
            keys[int(self._random() * len(keys))] = (-2.0, 0.0)
        return _by(targets, keys)


class Sticky:
    """The same target for what belongs together, so that its prefix cache hits: rendezvous hashing by weight, so that a
    target that is lost moves its own share and no other. By chance where nothing belongs together."""

    def __init__(self, random: Random) -> None:
        self._by_chance = Weighted(random)

    def order(self, targets: Sequence[Target], asked: Asked) -> Sequence[Target]:
        affinity = asked.affinity()
        if affinity is None:
            return self._by_chance.order(targets, asked)
        return _by(
            targets, [_exponential(_hash(f"{each.label}:{each.adapter}\n{affinity}")) / each.weight for each in targets]
        )


def _by(targets: Sequence[Target], keys: Sequence[float] | Sequence[tuple[float, float]]) -> Sequence[Target]:
    """The targets with the smallest key first."""
    return [targets[place] for place in sorted(range(len(targets)), key=keys.__getitem__)]


def _exponential(uniform: float) -> float:
    return -math.log1p(-uniform)


def _hash(text: str) -> float:
    """From 0 to 1, 1 excluded; the same on every machine."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest, "big") / (1 << 48)
