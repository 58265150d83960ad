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
    "batch_size": ("max_batch_tokens", "scheduler"),
    "cache_type_k": ("kv_cache",),
    "cache_type_v": ("kv_cache",),
    "concurrency": ("parallel",),
    "content_policy_fallbacks": ("on_content_filter",),
    "context_window_fallbacks": ("on_context_overflow",),
    "ctx_size": ("context",),
    "database_url": ("url",),
    "draft": ("speculative",),
    "draft_model": ("speculative",),
    "dsn": ("url",),
    "endpoint": ("base_url",),
    "fallback": ("on_failure",),
    "fallbacks": ("on_failure",),
    "file": ("source",),
    "from": ("source",),
    "gguf": ("source",),
    "gpu_memory_utilization": ("memory", "kv_cache"),
    "hf": ("source",),
    "host": ("base_url",),
    "key": ("api_key", "secret"),
    "kv_cache_dtype": ("kv_cache",),
    "location": ("region",),
    "lora": ("adapters",),
    "lora_modules": ("adapters",),
    "loras": ("adapters",),
    "max_model_len": ("context",),
    "max_num_batched_tokens": ("max_batch_tokens", "scheduler"),
    "max_num_seqs": ("max_sequences", "scheduler"),
    "max_parallel_requests": ("parallel",),
    "max_retries": ("attempts", "retry"),
    "max_tokens": ("defaults", "params"),
    "model": ("targets", "use", "source"),
    "model_draft": ("speculative",),
    "model_path": ("source",),
    "n_batch": ("max_batch_tokens", "scheduler"),
    "n_ctx": ("context",),
    "n_gpu_layers": ("device",),
    "n_parallel": ("max_sequences", "scheduler"),
    "n_threads": ("threads",),
    "name": ("id",),
    "ngl": ("device",),
    "num_ctx": ("context",),
    "num_gpu": ("device",),
    "num_parallel": ("max_sequences", "scheduler"),
    "num_retries": ("attempts", "retry"),
    "num_thread": ("threads",),
    "path": ("url", "source"),
    "period": ("per",),
    "port": ("base_url",),
    "project_id": ("project",),
    "quant": ("weights",),
    "quantization": ("weights",),
    "reasoning_parser": ("reasoning_format",),
    "repo": ("source",),
    "requests_per_minute": ("rpm",),
    "retries": ("attempts", "retry"),
    "routing_strategy": ("strategy",),
    "team_id": ("team",),
    "team_id_jwt_field": ("team_claim",),
    "temperature": ("defaults", "params"),
    "template": ("chat_template",),
    "tensor_parallel_size": ("tensor_parallel",),
    "timeout": ("timeouts", "total_s"),
    "token": ("api_key", "secret"),
    "tokens_per_minute": ("tpm",),
    "tool_call_parser": ("tool_format",),
    "tool_parser": ("tool_format",),
    "ttl": ("ttl_s", "ttl_days"),
    "url": ("base_url", "source"),
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
_SEQUENCES = "'scheduler.max_sequences' of the local provider"
_BATCH = "'scheduler.max_batch_tokens' of the local provider"
_CACHE_TYPE = "'kv_cache.dtype' of the local provider"
_DEVICE = "'device' of the local provider"
_IDLE = "'idle_unload_s' of the local provider, or of one of its models"
_THREADS = "'threads' of the local provider"
_PLACES: Mapping[str, str] = {
    "api_keys": _KEYS_OF_CLIENTS,
    "batch_size": _BATCH,
    "budget": _BUDGETS,
    "cache_type_k": _CACHE_TYPE,
    "cache_type_v": _CACHE_TYPE,
    "cors": "'server.cors'",
    "database": _DATABASE,
    "database_url": _DATABASE,
    "db": _DATABASE,
    "device": _DEVICE,
    "fallbacks": _FALLBACKS,
    "general_settings": _OTHER_FORMAT,
    "gpu_memory_utilization": "'kv_cache.memory' of the local provider",
    "host": "'server.host'",
    "idle_timeout": _IDLE,
    "keep_alive": _IDLE,
    "keys": _KEYS_OF_CLIENTS,
    "kv_cache_dtype": _CACHE_TYPE,
    "limits": _LIMITS,
    "litellm_settings": _OTHER_FORMAT,
    "log": "'telemetry.log'",
    "log_level": "one level for all: a line a request, in the form of 'telemetry.log'",
    "logging": "'telemetry.log'",
    "master_key": _KEYS_OF_CLIENTS,
    "max_budget": _BUDGETS,
    "max_loaded_models": "'max_loaded' of the local provider",
    "max_num_batched_tokens": _BATCH,
    "max_num_seqs": _SEQUENCES,
    "max_retries": _RETRIES,
    "metrics": "'telemetry.prometheus'",
    "model": "named where it is used, as in openai/gpt-5",
    "model_list": _OTHER_FORMAT,
    "n_batch": _BATCH,
    "n_gpu_layers": _DEVICE,
    "n_parallel": _SEQUENCES,
    "n_threads": _THREADS,
    "ngl": _DEVICE,
    "num_gpu": _DEVICE,
    "num_parallel": _SEQUENCES,
    "num_retries": _RETRIES,
    "num_thread": _THREADS,
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
    "sleep_idle_seconds": _IDLE,
    "ssl": "'server.tls'",
    "teams": "'auth.teams'",
    "temperature": "'defaults' of a name under 'models'",
    "tensor_parallel": "'tensor_parallel' of the local provider",
    "tensor_parallel_size": "'tensor_parallel' of the local provider",
    "threads": _THREADS,
    "timeout": _TIMEOUTS,
    "timeouts": _TIMEOUTS,
    "tls": "'server.tls'",
    "top_k": "'defaults' of a name under 'models'",
    "top_p": "'defaults' of a name under 'models'",
    "tpm": _LIMITS,
    "ttl": _IDLE,
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
