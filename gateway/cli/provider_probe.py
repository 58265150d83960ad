"""`gateway check --probe`: does each provider answer, does it take its key, and does it list the models that run.yaml
names? Asks for lists alone, which spends no tokens.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from adapters.canonical.errors import GatewayError
from adapters.nearest_name import did_you_mean
from gateway.config import Config, Fault, Redactor
from gateway.config.faults import Location

if TYPE_CHECKING:
    from providers.base import Provider

__all__ = ["Probe", "probe_providers", "unlisted"]

_WAIT_S: Final = 10.0


class Probe(Struct, frozen=True):
    """What came of one provider: the ids of its models, or why there are none; and after how long."""

    models: frozenset[str]
    took_s: float
    fault: Fault | None = None


async def probe_providers(config: Config) -> Mapping[str, Probe]:
    """All that are switched on but those of this process, at the same time. The configuration can be built."""
    from gateway.config.sections.local import LocalProvider
    from gateway.server.provider_building import build_provider_of

    remote = [name for name, entry in config.providers.items() if not isinstance(entry, LocalProvider)]
    probes = [_probe(config, build_provider_of(config, name, None)) for name in remote]
    return dict(zip(remote, await asyncio.gather(*probes), strict=True))


async def _probe(config: Config, provider: "Provider") -> Probe:
    began = time.perf_counter()
    models: frozenset[str] = frozenset()
    fault: Fault | None = None
    async with aclosing(provider):
        try:
            async with asyncio.timeout(_WAIT_S):
                entries = await provider.models()
            models = frozenset([entry.id for entry in entries])
        except (GatewayError, TimeoutError) as error:
            why = Redactor(config.secrets)(str(error)) or f"no answer within {_WAIT_S:g} s"
            at: Location = ("providers", provider.name)
            fault = Fault(at, config.line_of(at), f"cannot be asked: {why}")
    return Probe(models, time.perf_counter() - began, fault)


def unlisted(config: Config, probes: Mapping[str, Probe]) -> list[Fault]:
    """The targets of public names that their providers do not list, which may serve them all the same."""
    types = {name: entry.type for name, entry in config.providers.items()}
    lists = {
        name: probe.models for name, probe in probes.items() if types[name] != "azure"
    }  # which lists no deployments
    found: list[Fault] = []
    for name, alias in config.models.items():
        uses: list[tuple[Location, str]] = [(("targets", n), target.use) for n, target in enumerate(alias.targets)]
        for field in ("on_failure", "on_context_overflow", "on_content_filter"):
            uses += [((field, n), use) for n, use in enumerate(getattr(alias, field))]
        for place, use in uses:
            provider, _, model = use.partition("/")
            known = lists.get(provider)
            if known and "*" not in model and not _lists(known, model):
                at: Location = ("models", name, *place)
                why = f"'{provider}' lists no model '{model}'{did_you_mean(model, known)}"
                found.append(Fault(at, config.line_of(at), why))
    return found


def _lists(known: frozenset[str], model: str) -> bool:
    """Whether it is there, maybe with a date or a tag behind its name."""
    return model in known or any(one.startswith((f"{model}-", f"{model}:")) for one in known)
