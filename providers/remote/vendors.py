"""OpenAI-shaped vendors as rows of data: where they are, how they take the key, and what they do not take.

A new vendor whose differences are all of these kinds is a new row and nothing else. Facts are from the vendors' API
references as of 2026-11; a row says only what is known, and what is not known counts as OpenAI's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from adapters.canonical.messages import (
    Audio,
    Document,
    File,
    Image,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from adapters.canonical.request import EXPRESSIBLE_FIELDS
from adapters.canonical.tool_kinds import CUSTOM, FUNCTION
from adapters.openai.cache_fields import BREAKPOINT, CACHE_CONTROL
from adapters.openai.quirks import Quirks
from adapters.openai.rerank.upstream import RERANK_WORDS, TEI_RERANK_WORDS, RerankWords
from adapters.openai.vocabulary import CHAT, CHAT_FIELDS, COMPLETION_FIELDS, COMPLETIONS
from adapters.tool_names import FixedIds, NameRule, short
from providers.abilities import EXTRAS

__all__ = ["OPENAI_COMPATIBLE", "VENDORS", "Vendor"]

_BASIC = frozenset(
    # What every chat server takes.
    (
        "messages", "max_tokens", "temperature", "top_p", "stop", "seed", "presence_penalty", "frequency_penalty",
        "tools", "tool_choice", "output_format",
    )
)  # fmt: skip
_OPENAI = _BASIC | frozenset(
    (
        "prompts", "suffix", "echo", "n", "best_of", "logprobs", "logit_bias", "user", "parallel_tool_calls",
        "modalities", "audio", "prediction", "web_search_options", "moderation", "metadata", "verbosity", "store",
        "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",
        "reasoning.effort", "include_obfuscation",
    )
)  # fmt: skip
_ALL = _OPENAI | (EXPRESSIBLE_FIELDS & (CHAT_FIELDS.by_name.keys() | COMPLETION_FIELDS.by_name.keys()))
"""Everything that the dialect can spell: for servers of which nothing else is known."""
_SAMPLERS = frozenset(("top_k", "min_p", "repetition_penalty"))
_ENGINE = _SAMPLERS | frozenset(
    (
        "stop_token_ids", "include_stop", "ignore_eos", "min_tokens", "skip_special_tokens", "return_token_ids",
        "priority",
    )
)  # fmt: skip
_PLAIN = Quirks()
_OPENAI_NAMES = NameRule(first="a-zA-Z0-9_-", allowed="a-zA-Z0-9_-", max_length=64)
_OPENAI_QUIRKS = Quirks(
    limit_field="max_completion_tokens",
    tool_names=_OPENAI_NAMES,
    call_ids=short(40),
    user_ids=short(64),
    cache_field=BREAKPOINT,
    tool_media=False,
)
_END_MARKS = ("<|eot_id|>", "<|im_end|>", "<|end_of_text|>", "<|endoftext|>", "</s>", "<end_of_turn>")
"""Of the open models' templates: hosts that decode special tokens leave them at the end of answers."""
_TEXT_PARTS: frozenset[type[Part]] = frozenset((Text, Refusal, ToolCall, ToolResult, Document))
_TEXT_AND_IMAGES: frozenset[type[Part]] = _TEXT_PARTS | frozenset((Image,))
_TEXT_AND_REASONING: frozenset[type[Part]] = _TEXT_PARTS | frozenset((Reasoning,))
_OPENAI_PARTS: frozenset[type[Part]] = _TEXT_AND_IMAGES | frozenset((Audio, File))
_ALL_PARTS: frozenset[type[Part]] = _OPENAI_PARTS | frozenset((Video, Reasoning, Opaque))
_ENGINE_OPENAI = _OPENAI - {"modalities", "audio", "prediction", "web_search_options", "moderation"}
"""What the open engines take of OpenAI's fields."""
_OWN_DIALECT = frozenset((CHAT, COMPLETIONS))
_EMBEDS = frozenset(("embeddings",))
_RANKS = frozenset(("embeddings", "rerank"))
_CUT = "truncate_prompt_tokens"
_EMBEDDING_FIELDS = frozenset(("dimensions", "user", EXTRAS))
_RERANK_FIELDS = frozenset(("top_n", EXTRAS))
_SPEECH = "/audio/speech"
_TRANSCRIPTIONS = "/audio/transcriptions"
_TRANSLATIONS = "/audio/translations"
_GENERATED_IMAGES = "/images/generations"
_FILES = "/files"
_BATCHES = "/batches"
_ALL_PATHS = frozenset(("/audio", "/images", "/moderations", _FILES, _BATCHES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """One OpenAI-shaped API.

    `base_url` None: run.yaml must name it. `key_header` carries the key, after `key_prefix`. `fields` are canonical
    names (`adapters.canonical.request.EXPRESSIBLE_FIELDS`), `forwards` the dialects whose unmapped fields it takes.
    """

    name: str
    base_url: str | None = None
    key_header: str = "authorization"
    key_prefix: str = "Bearer "
    quirks: Quirks = _PLAIN
    fields: frozenset[str] = _OPENAI
    forwards: frozenset[str] = _OWN_DIALECT
    parts: frozenset[type[Part]] = _OPENAI_PARTS
    tool_kinds: frozenset[str] = frozenset((FUNCTION,))
    native_choices: bool = True
    request_id_header: str = "x-request-id"
    fim: bool = False
    """It completes text at Mistral's path, and answers as chat does."""
    abilities: frozenset[str] = frozenset()
    """What it does beside generating: `embeddings`, `rerank`, `tokenize` (vLLM's), `chat_token_count` (llama.cpp's)."""
    embedding_fields: frozenset[str] = _EMBEDDING_FIELDS
    base64_embeddings: bool = False
    """It writes vectors as base64 when asked to."""
    rerank_is_versioned: bool = True
    """Its rerank lies below the base URL, not beside its version."""
    rerank_words: RerankWords = RERANK_WORDS
    rerank_fields: frozenset[str] = _RERANK_FIELDS
    forwarded_paths: frozenset[str] = frozenset()
    """Endpoints below the base URL (and what lies below them) whose calls pass through unread."""
    tools_unread: bool = False
    """With tool choice none it shows the model its tools all the same, and reads no calls."""


OPENAI_COMPATIBLE = Vendor(
    name="openai-compatible",
    fields=_ALL,
    parts=_ALL_PARTS,
    tool_kinds=frozenset((FUNCTION, CUSTOM)),
    abilities=_RANKS,
    embedding_fields=_EMBEDDING_FIELDS | {_CUT},
    rerank_fields=_RERANK_FIELDS | {_CUT, "user"},
    forwarded_paths=_ALL_PATHS,
)
"""The server of which only the dialect is known."""

_ROWS = (
    OPENAI_COMPATIBLE,
    Vendor(
        name="openai",
        base_url="https://api.openai.com/v1",
        quirks=_OPENAI_QUIRKS,
        tool_kinds=frozenset((FUNCTION, CUSTOM)),
        abilities=_EMBEDS,
        base64_embeddings=True,
        forwarded_paths=_ALL_PATHS,
    ),
    Vendor(
        name="azure",
        key_header="api-key",
        key_prefix="",
        quirks=_OPENAI_QUIRKS,
        tool_kinds=frozenset((FUNCTION, CUSTOM)),
        abilities=_EMBEDS,
        base64_embeddings=True,
        forwarded_paths=_ALL_PATHS - {"/moderations"},
    ),
    Vendor(
        name="vllm",
        base_url="http://localhost:8000/v1",
        tools_unread=True,
        fields=(_ALL - (_OPENAI - _ENGINE_OPENAI))
        - {"top_p_min", "typical_p", "early_stopping", "return_context_logits", "detokenize", "suffix"}
        - {"prompt_token_ids", "reasoning.separate"},
        parts=_ALL_PARTS,
        abilities=_RANKS | {"tokenize"},
        embedding_fields=_EMBEDDING_FIELDS | {_CUT},
        base64_embeddings=True,
        rerank_fields=_RERANK_FIELDS | {_CUT, "user"},
        forwarded_paths=frozenset((_TRANSCRIPTIONS, _TRANSLATIONS)),
    ),
    Vendor(
        name="sglang",
        base_url="http://localhost:30000/v1",
        quirks=Quirks(names={"include_stop": "no_stop_trim", "prompt_token_ids": "input_ids"}),
        fields=(_ENGINE_OPENAI | _ENGINE | {"cache_salt", "template.kwargs", "template.continue_final_message"})
        - {"best_of"}
        | {"prompt_token_ids", "reasoning.separate"},
        parts=_ALL_PARTS,
        abilities=_RANKS,
    ),
    Vendor(
        name="llama.cpp",
        base_url="http://localhost:8080/v1",
        quirks=Quirks(
            names={
                "repetition_penalty": "repeat_penalty",
                "reasoning.budget_tokens": "reasoning_budget_tokens",
            }
        ),
        fields=(_ENGINE_OPENAI - {"echo", "best_of", "suffix"})
        | _SAMPLERS
        | {"typical_p", "ignore_eos", "reasoning.budget_tokens", "template.kwargs"}
        | {"template.continue_final_message", "template.add_generation_prompt"},
        parts=_ALL_PARTS,
        abilities=_RANKS | {"chat_token_count"},
        embedding_fields=frozenset((EXTRAS,)),
        base64_embeddings=True,
    ),
    Vendor(
        name="lm-studio",
        base_url="http://localhost:1234/v1",
        quirks=Quirks(names={"repetition_penalty": "repeat_penalty"}),
        fields=_BASIC | {"prompts", "n", "logit_bias", "top_k", "repetition_penalty"},
        parts=_ALL_PARTS,
        native_choices=False,
        abilities=_EMBEDS,
    ),
    Vendor(
        name="openrouter",
        base_url="https://openrouter.ai/api/v1",
        quirks=Quirks(cache_field=CACHE_CONTROL, user_ids=short(128)),
        fields=(_OPENAI | _SAMPLERS) - {"suffix", "echo", "best_of"},
        parts=_ALL_PARTS,
        native_choices=False,
        abilities=_EMBEDS,
    ),
    Vendor(
        name="groq",
        base_url="https://api.groq.com/openai/v1",
        quirks=Quirks(limit_field="max_completion_tokens", tool_names=_OPENAI_NAMES),
        fields=_BASIC | {"n", "user", "parallel_tool_calls", "reasoning.effort", "service_tier"},
        parts=_TEXT_AND_IMAGES,
        native_choices=False,
        forwarded_paths=frozenset((_TRANSCRIPTIONS, _TRANSLATIONS, _SPEECH, _FILES, _BATCHES)),
    ),
    Vendor(
        name="together",
        base_url="https://api.together.xyz/v1",
        quirks=Quirks(end_marks=_END_MARKS),
        fields=_BASIC | _SAMPLERS | {"prompts", "n", "echo", "logit_bias", "reasoning.effort"},
        parts=_ALL_PARTS,
        abilities=_RANKS,
        embedding_fields=frozenset((EXTRAS,)),
        forwarded_paths=frozenset((_TRANSCRIPTIONS, _TRANSLATIONS, _SPEECH, _GENERATED_IMAGES, _FILES, _BATCHES)),
    ),
    Vendor(
        name="fireworks",
        base_url="https://api.fireworks.ai/inference/v1",
        fields=_BASIC | _SAMPLERS | {"prompts", "n", "echo", "logit_bias", "logprobs", "user", "reasoning.effort"},
        parts=_ALL_PARTS,
        abilities=_RANKS,
    ),
    Vendor(
        name="deepseek",
        base_url="https://api.deepseek.com/v1",
        quirks=Quirks(developer_role=False, tool_names=_OPENAI_NAMES, thoughts_due=True),
        fields=(_BASIC | {"n", "logprobs", "reasoning.effort"}) - {"seed"},
        parts=_TEXT_AND_REASONING,
        native_choices=False,
    ),
    Vendor(
        name="mistral",
        base_url="https://api.mistral.ai/v1",
        quirks=Quirks(
            names={"seed": "random_seed"},
            stream_options=False,
            developer_role=False,
            tool_names=_OPENAI_NAMES,
            call_ids=FixedIds(9),
            prefix=True,
            flat_media=True,
        ),
        fields=_BASIC
        | {"n", "parallel_tool_calls", "prediction", "template.continue_final_message", "min_tokens", "metadata"}
        | {"top_k", "repetition_penalty", "logprobs", "prompt_cache_key", "reasoning.effort", "prompts", "suffix"},
        parts=_OPENAI_PARTS,
        fim=True,
        abilities=_EMBEDS,
        embedding_fields=frozenset((EXTRAS,)),
        forwarded_paths=frozenset((_TRANSCRIPTIONS, "/moderations", _FILES)),
    ),
    Vendor(
        name="tgi",
        base_url="http://localhost:8080/v1",
        quirks=Quirks(developer_role=False, end_marks=_END_MARKS),
        fields=_BASIC | {"logprobs"},
        parts=_TEXT_AND_IMAGES,
        native_choices=False,
    ),
    Vendor(
        name="tensorrt-llm",
        base_url="http://localhost:8000/v1",
        fields=(_ENGINE_OPENAI | _ENGINE | {"best_of", "bad_words", "early_stopping", "length_penalty"})
        - {"return_token_ids", "priority", "suffix"},
        parts=_TEXT_AND_IMAGES,
    ),
    Vendor(
        name="xai",
        base_url="https://api.x.ai/v1",
        quirks=Quirks(limit_field="max_completion_tokens"),
        fields=_BASIC | {"n", "logprobs", "user", "parallel_tool_calls", "reasoning.effort"},
        parts=_TEXT_AND_IMAGES | {Reasoning},
        forwarded_paths=frozenset((_GENERATED_IMAGES,)),
    ),
    Vendor(
        name="perplexity",
        base_url="https://api.perplexity.ai",
        quirks=Quirks(developer_role=False, stream_options=False),
        fields=(_BASIC | {"top_k", "web_search_options", "reasoning.effort"}) - {"tools", "tool_choice", "seed"},
        parts=_TEXT_AND_IMAGES,
        tool_kinds=frozenset(),
        native_choices=False,
    ),
    Vendor(
        name="nvidia",
        base_url="https://integrate.api.nvidia.com/v1",
        quirks=Quirks(developer_role=False),
        fields=_BASIC | {"n", "logprobs", "user", "parallel_tool_calls", "reasoning.effort"},
        parts=_TEXT_AND_IMAGES,
        native_choices=False,
        abilities=_EMBEDS,
    ),
    Vendor(
        name="cerebras",
        base_url="https://api.cerebras.ai/v1",
        quirks=Quirks(limit_field="max_completion_tokens", developer_role=False),
        fields=(_BASIC | {"logprobs", "user", "parallel_tool_calls", "reasoning.effort", "service_tier"})
        - {"presence_penalty", "frequency_penalty"},
        parts=_TEXT_PARTS,
        native_choices=False,
    ),
    Vendor(
        name="moonshot",
        base_url="https://api.moonshot.ai/v1",
        quirks=Quirks(developer_role=False, tool_names=_OPENAI_NAMES, thoughts_due=True),
        fields=(_BASIC | {"n", "prompt_cache_key", "safety_identifier"}) - {"seed"},
        parts=_TEXT_AND_IMAGES | {Reasoning},
        forwarded_paths=frozenset((_FILES,)),
    ),
    Vendor(
        name="dashscope",
        base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        quirks=Quirks(
            developer_role=False,
            cache_field=CACHE_CONTROL,
            names={"reasoning.budget_tokens": "thinking_budget"},
        ),
        fields=(_BASIC | {"n", "top_k", "logprobs", "parallel_tool_calls", "reasoning.budget_tokens"})
        - {"frequency_penalty"},
        parts=_TEXT_AND_IMAGES | {Audio, Video, Reasoning},
        native_choices=False,
        abilities=_EMBEDS,
        embedding_fields=frozenset(("dimensions", EXTRAS)),
        forwarded_paths=frozenset((_FILES, _BATCHES)),
    ),
    Vendor(
        name="zai",
        base_url="https://api.z.ai/api/paas/v4",
        quirks=Quirks(developer_role=False),
        fields=(_BASIC | {"user"}) - {"seed", "presence_penalty", "frequency_penalty"},
        parts=_TEXT_AND_IMAGES | {Reasoning},
        native_choices=False,
    ),
    Vendor(
        name="huggingface",
        base_url="https://router.huggingface.co/v1",
        quirks=Quirks(developer_role=False, end_marks=_END_MARKS),
        fields=_BASIC | {"logprobs", "reasoning.effort"},
        parts=_TEXT_AND_IMAGES,
        native_choices=False,
    ),
    Vendor(
        name="databricks",
        quirks=Quirks(developer_role=False, tool_names=_OPENAI_NAMES, cache_field=CACHE_CONTROL),
        fields=(_BASIC | {"n", "top_k", "logprobs", "reasoning.effort"}) - {"seed"},
        parts=_TEXT_AND_IMAGES,
        native_choices=False,
        abilities=_EMBEDS,
        embedding_fields=frozenset((EXTRAS,)),
    ),
    Vendor(
        name="tei",
        base_url="http://localhost:8080/v1",
        fields=frozenset(),
        forwards=frozenset(),
        abilities=_RANKS,
        base64_embeddings=True,
        rerank_is_versioned=False,
        rerank_words=TEI_RERANK_WORDS,
    ),
    Vendor(
        name="jina",
        base_url="https://api.jina.ai/v1",
        fields=frozenset(),
        forwards=frozenset(),
        abilities=_RANKS,
        base64_embeddings=True,
    ),
)

VENDORS: Mapping[str, Vendor] = {row.name: row for row in _ROWS}
