"""Builds the response cache that `cache:` of run.yaml asks for."""

from collections.abc import Callable
from hashlib import sha256

from gateway.cache.exact import ExactCache
from gateway.cache.stores import MemoryStore, Store
from gateway.config import Config
from gateway.server.log import Log

__all__ = ["build_cache"]


def build_cache(config: Config, log: Log, clock: Callable[[], float]) -> ExactCache | None:
    """None: there is none. Raises ImportError where `shared` is set and the extra [redis] is missing."""
    section = config.run.cache.exact if config.run.cache is not None else None
    if section is None:
        return None
    store: Store = MemoryStore(section.max_mb * 2**20, section.ttl_s, clock)
    if config.run.shared is not None:
        try:
            from gateway.cache.redis_store import RedisStore
        except ImportError as error:
            raise ImportError("shared: Redis needs an extra: pip install 'llm-protocol-gateway[redis]'") from error
        store = RedisStore(config.run.shared.url.get_secret_value(), section.ttl_s, clock=clock, log=log.write)
    # Secrets are masked in it, and say nothing about answers.
    said = repr((config.run.providers, config.run.models, config.run.guardrails, config.run.server))
    targets = [target for alias in config.models.values() for target in alias.targets]
    headers = {name.lower() for target in targets if target.when is not None for name in target.when.header}
    return ExactCache(store, sha256(said.encode()).digest(), headers)
