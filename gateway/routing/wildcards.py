"""Public names with a star: `gpt-*` is any name that it matches, and what the star is fills the star of its targets."""

from collections.abc import Collection
from dataclasses import replace

from gateway.routing.route import Route, Shadow, Target

__all__ = ["PublicNames", "filled", "filling"]

_LATEST = ":latest"
"""Ollama's clients append it; it is no part of a name that has it not itself."""


class PublicNames:
    """`names` are those of `models:`, `providers` the names of providers."""

    def __init__(self, names: Collection[str], providers: Collection[str]) -> None:
        self._exact = frozenset(name for name in names if "*" not in name)
        self._providers = frozenset(providers)
        halves = [name.split("*") for name in names if "*" in name]
        self._wild = ["*".join(each) for each in sorted(halves, key=lambda each: [*map(len, each)], reverse=True)]

    def of(self, name: str) -> tuple[str, str] | None:
        """The public name under which a client asks, and the name that it means; they differ for one with a star. None:
        it is no public name.

        An exact name goes first, then a provider's own prefix, then the star with the longest text before it, of these
        the one with the longest after it.
        """
        if name in self._exact:
            return name, name
        plain = name.removesuffix(_LATEST)
        if plain in self._exact:
            return plain, plain
        prefix, slash, _ = name.partition("/")
        if not self._wild or (slash and prefix in self._providers):
            return None
        return next(((wild, plain) for wild in self._wild if filling(wild, plain) is not None), None)


def filling(wild: str, name: str) -> str | None:
    """What the star stands for in a name, which is never nothing. None: it does not match."""
    before, _, after = wild.partition("*")
    if len(name) <= len(before) + len(after) or not (name.startswith(before) and name.endswith(after)):
        return None
    return name[len(before) : len(name) - len(after)]


def filled(route: Route, star: str) -> Route:
    """The route with this in the place of its targets' star."""

    def fill(targets: tuple[Target, ...]) -> tuple[Target, ...]:
        return tuple([replace(target, model=target.model.replace("*", star)) for target in targets])

    shadow, detours = route.shadow, route.detours
    return replace(
        route,
        targets=fill(route.targets),
        on_failure=fill(route.on_failure),
        detours=None if detours is None else {error: fill(targets) for error, targets in detours.items()},
        shadow=None if shadow is None else Shadow(fill((shadow.target,))[0], shadow.share),
    )
