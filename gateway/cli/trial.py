"""What would keep the gateway from starting, beyond what the configuration alone can tell: it is built, and let go.

Opens no connection, writes nothing and loads no model: that is what starting does.
"""

import re
from typing import TYPE_CHECKING

from gateway.config import Config, Fault, Redactor
from gateway.config.faults import Location

if TYPE_CHECKING:
    from providers.base import Provider

__all__ = ["find_faults"]

_AT = re.compile(r"(\S+?): (.+)", re.DOTALL)
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


async def find_faults(config: Config) -> list[Fault]:
    """All that is wrong with single providers, or else the first thing that is wrong with the whole."""
    from gateway.server.app import Surroundings, build_app
    from gateway.server.process.tls import tls_context
    from gateway.server.provider_building import build_provider_of

    errors: list[Exception] = []
    providers: dict[str, Provider] = {}
    for name in config.providers:
        try:
            providers[name] = build_provider_of(config, name, None)
        except (ValueError, ImportError) as error:
            errors.append(error)
    try:
        if config.server.tls is not None:
            tls_context(config.server.tls)
        if not errors:
            app = build_app(config, providers=providers, around=Surroundings(log=None))
            await app.aclose()
            return []
    except (ValueError, ImportError) as error:
        errors.append(error)
    for provider in providers.values():
        await provider.aclose()
    redact = Redactor(config.secrets)
    return [_fault(config, redact(str(error))) for error in errors]


def _fault(config: Config, message: str) -> Fault:
    """These messages begin with the place, as `guardrails[0].use: ...`."""
    match = _AT.fullmatch(message)
    if match is None:
        return Fault((), 0, message)
    steps = _STEP.finditer(match[1])
    location: Location = tuple(int(step[1]) if step[1] else step[2] for step in steps)
    return Fault(location, config.line_of(location), match[2])
