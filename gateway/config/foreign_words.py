"""What other gateways and the makers of models call a thing, and what run.yaml calls it: for hints in messages."""

from collections.abc import Mapping, Sequence

from adapters.nearest_name import did_you_mean_or_all

__all__ = ["meant_key", "meant_type"]

_KEYS: Mapping[str, tuple[str, ...]] = {
    "address": ("base_url",),
    "amount": ("usd",),
    "api_base": ("base_url",),
    "api_key": ("secret",),
    "api_keys": ("api_key",),
    "aws_region": ("region",),
    "aws_region_name": ("region",),
    "azure_endpoint": ("base_url",),
    "concurrency": ("parallel",),
    "content_policy_fallbacks": ("on_content_filter",),
    "context_window_fallbacks": ("on_context_overflow",),
    "database_url": ("url",),
    "dsn": ("url",),
    "endpoint": ("base_url",),
    "fallback": ("on_failure",),
    "fallbacks": ("on_failure",),
    "host": ("base_url",),
    "key": ("api_key", "secret"),
    "location": ("region",),
    "max_parallel_requests": ("parallel",),
    "max_retries": ("attempts", "retry"),
    "max_tokens": ("defaults", "params"),
    "model": ("targets", "use"),
    "name": ("id",),
    "num_retries": ("attempts", "retry"),
    "path": ("url",),
    "period": ("per",),
    "port": ("base_url",),
    "project_id": ("project",),
    "requests_per_minute": ("rpm",),
    "retries": ("attempts", "retry"),
    "routing_strategy": ("strategy",),
    "team_id": ("team",),
    "team_id_jwt_field": ("team_claim",),
    "temperature": ("defaults", "params"),
    "timeout": ("timeouts", "total_s"),
    "token": ("api_key", "secret"),
    "tokens_per_minute": ("tpm",),
    "ttl": ("ttl_s", "ttl_days"),
    "url": ("base_url",),
    "user_id_jwt_field": ("id_claim",),
    "value": ("secret",),
    "vertex_location": ("region",),
    "vertex_project": ("project",),
}
"""The first one that may stand where the word stands is meant."""

_RETRIES = "'attempts' under 'reliability.retry'"
_TIMEOUTS = "'reliability.timeouts'"
_KEYS_OF_CLIENTS = "'auth.keys'"
_LIMITS = "'limits' of each entry of 'auth.keys', or of a name under 'models'"
_BUDGETS = "'budget' of each entry of 'auth.keys', or of a name under 'models'"
_FALLBACKS = "'on_failure' of a name under 'models'"
_DATABASE = "'storage.url'"
_REDIS = "'shared.url'"
_OTHER_FORMAT = "'providers' and 'models' of this gateway's own format (docs/migrating.md)"
_PLACES: Mapping[str, str] = {
    "api_keys": _KEYS_OF_CLIENTS,
    "budget": _BUDGETS,
    "cors": "'server.cors'",
    "database": _DATABASE,
    "database_url": _DATABASE,
    "db": _DATABASE,
    "fallbacks": _FALLBACKS,
    "general_settings": _OTHER_FORMAT,
    "host": "'server.host'",
    "keys": _KEYS_OF_CLIENTS,
    "limits": _LIMITS,
    "litellm_settings": _OTHER_FORMAT,
    "log": "'telemetry.log'",
    "log_level": "one level for all: a line a request, in the form of 'telemetry.log'",
    "logging": "'telemetry.log'",
    "master_key": _KEYS_OF_CLIENTS,
    "max_budget": _BUDGETS,
    "max_retries": _RETRIES,
    "metrics": "'telemetry.prometheus'",
    "model": "named where it is used, as in openai/gpt-5",
    "model_list": _OTHER_FORMAT,
    "num_retries": _RETRIES,
    "otel": "'telemetry.otlp'",
    "otlp": "'telemetry.otlp'",
    "port": "'server.port'",
    "project": "a key of the type 'gemini'",
    "prometheus": "'telemetry.prometheus'",
    "rate_limits": _LIMITS,
    "redis": _REDIS,
    "redis_url": _REDIS,
    "region": "a key of the types 'gemini' and 'bedrock'",
    "request_timeout": _TIMEOUTS,
    "retries": _RETRIES,
    "router_settings": _OTHER_FORMAT,
    "rpm": _LIMITS,
    "ssl": "'server.tls'",
    "teams": "'auth.teams'",
    "timeout": _TIMEOUTS,
    "timeouts": _TIMEOUTS,
    "tls": "'server.tls'",
    "tpm": _LIMITS,
    "virtual_keys": _KEYS_OF_CLIENTS,
    "workers": "'server.workers'",
}
"""Where it stands instead, for words that nothing near them is meant by."""

_TYPES: Mapping[str, str] = {
    "alibaba": "dashscope",
    "aws": "bedrock",
    "azure-openai": "azure",
    "azure_openai": "azure",
    "chatgpt": "openai",
    "claude": "anthropic",
    "custom": "openai-compatible",
    "google": "gemini",
    "gpt": "openai",
    "grok": "xai",
    "hf": "huggingface",
    "kimi": "moonshot",
    "litellm": "openai-compatible",
    "nim": "nvidia",
    "qwen": "dashscope",
    "trtllm": "tensorrt-llm",
    "vertex": "gemini",
    "vertex-ai": "gemini",
    "vertex_ai": "gemini",
    "zhipu": "zai",
}


def meant_key(word: str, known: Sequence[str]) -> str:
    """The end of a message about a key that is not among those that may stand there."""
    for ours in _KEYS.get(word, ()):
        if ours in known:
            return f", did you mean '{ours}'?"
    place = _PLACES.get(word)
    return did_you_mean_or_all(word, known) if place is None else f"; here it is {place}"


def meant_type(word: str, known: Sequence[str]) -> str:
    """The end of a message about a type of providers that nobody knows."""
    ours = _TYPES.get(word.lower())
    return f", did you mean '{ours}'?" if ours in known else did_you_mean_or_all(word, known)
