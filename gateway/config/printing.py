"""A configuration as YAML with its secrets hidden: what `gateway config` prints."""

from collections.abc import Mapping

import yaml
from pydantic import SecretStr

from gateway.config.faults import Location
from gateway.config.load import Config
from gateway.config.redaction import MASK, Redactor
from gateway.config.sections.section import Section

__all__ = ["render_config"]


def render_config(config: Config) -> str:
    """The resolved configuration with all defaults, as YAML. Secrets and everything from a `${...}` are masked.

    What is unset is left out, and a provider that is off says why in a comment.
    """
    shown = _shown(config.run, (), config.substituted, Redactor(config.secrets))
    text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=120)
    return "".join(f"# provider {name} is off: {why}\n" for name, why in config.off.items()) + text


def _shown(value: object, at: Location, substituted: frozenset[Location], redact: Redactor) -> object:
    if at in substituted or isinstance(value, SecretStr):
        return MASK
    if isinstance(value, Section):
        set_fields = {name: getattr(value, name) for name in type(value).model_fields}
        value = {name: child for name, child in set_fields.items() if child is not None}
    if isinstance(value, Mapping):
        return {redact(name): _shown(child, (*at, name), substituted, redact) for name, child in value.items()}
    if isinstance(value, tuple):
        return [_shown(child, (*at, index), substituted, redact) for index, child in enumerate(value)]
    return redact(value) if isinstance(value, str) else value
