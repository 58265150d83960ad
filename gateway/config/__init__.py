"""run.yaml -> one frozen, validated `Config`, or one `ConfigError` that lists everything that is wrong, line by line.

Owns the format of run.yaml. Knows no provider, no server and no model: the types of providers are passed in.
"""

from gateway.config.faults import ConfigError, Fault
from gateway.config.load import Config, ProviderConfig, load_config, parse_config
from gateway.config.redaction import MASK, Redactor

__all__ = ["MASK", "Config", "ConfigError", "Fault", "ProviderConfig", "Redactor", "load_config", "parse_config"]
