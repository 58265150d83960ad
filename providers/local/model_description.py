"""What is to be told of a local model: what its files rule out, its window, what it is for.

Known once the files are read, and true from then on, also while the model is not in memory.
"""

from dataclasses import asdict, dataclass
from dataclasses import replace as with_fields

from adapters.canonical.abilities import EMBED, GENERATE, RANK
from adapters.canonical.messages import Image, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from adapters.sampler_fields import SAMPLERS
from providers.base import Capabilities, ModelEntry
from providers.local.constraint import FORMAT_KINDS
from providers.local.custom_tools import CUSTOM
from providers.local.json_schemas import SCHEMA_LACKS
from providers.local.loading import AnyModel
from providers.local.local_encoder import LocalEncoder
from providers.local.local_model import LocalModel
from providers.local.thinking import reads_effort

__all__ = ["ModelDescription", "describe", "undescribed"]

_FIELDS = frozenset(
    (
        # Generation.
        "tools", "tool_choice", "parallel_tool_calls", "output_format", "reasoning.include", "reasoning.effort",
        "reasoning.budget_tokens", "reasoning.mode",
        "max_tokens", "n", "best_of", "logprobs", "echo", "adapter", "priority", "cache_salt", "return_token_ids",
        "prompt_logprobs", "return_context_logits", "prompt_token_ids", "logprob_token_ids",
        "return_tokens_as_token_ids", "detokenize", "truncate_prompt_tokens", "suffix", "reasoning.separate",
        "spaces_between_special_tokens",
        "temperature", "temperature_last", "top_p", "top_p_min", "top_k", "min_p", "typical_p", *SAMPLERS,
        "repetition_penalty", "presence_penalty", "frequency_penalty",
        "logit_bias", "seed", "stop", "stop_token_ids", "include_stop", "ignore_eos", "min_tokens",
        "allowed_token_ids", "bad_words", "use_beam_search", "length_penalty", "early_stopping", "skip_special_tokens",
        "template.kwargs", "template.add_generation_prompt", "template.continue_final_message",
        "template.add_special_tokens", "template.documents", "template.chat_template",
        # Labels and hints, which change nothing about the answer.
        "user", "safety_identifier", "metadata", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",
        "keep_alive_s",
    )
)  # fmt: skip
_PARTS: frozenset[type[Part]] = frozenset((Text, Refusal, Reasoning, ToolCall, ToolResult))
_CAPABILITIES = Capabilities(
    fields=_FIELDS,
    parts=_PARTS,
    tool_kinds=frozenset(("function", CUSTOM)),
    messages=True,
    prompts=True,
    output_formats=FORMAT_KINDS,
    schema_lacks=SCHEMA_LACKS,
)
_NO_GENERATION = Capabilities(fields=frozenset(), parts=frozenset(), messages=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """`entry` does not say whose it is."""

    capabilities: Capabilities
    entry: ModelEntry


def undescribed(refused: frozenset[str]) -> ModelDescription:
    """Of a model whose files nobody has read: it may do anything but what run.yaml forbids, the fields `refused`."""
    anything = with_fields(_CAPABILITIES, fields=_FIELDS - refused, parts=_PARTS | {Image})
    return ModelDescription(capabilities=anything, entry=ModelEntry(id=""))


def describe(model: AnyModel, refused: frozenset[str]) -> ModelDescription:
    """What its files say, without the fields `refused`."""
    if isinstance(model, LocalEncoder):
        return ModelDescription(
            capabilities=_NO_GENERATION,
            entry=ModelEntry(
                id=model.name,
                context=model.engine.info.max_tokens,
                abilities=frozenset((RANK,)) if model.scores else frozenset((EMBED, RANK)),
            ),
        )
    reads_images, formats = model.images is not None, model.formats
    return ModelDescription(
        capabilities=with_fields(
            _CAPABILITIES,
            fields=_FIELDS - refused - _lacks(model),
            parts=_PARTS | {Image} if reads_images else _PARTS,
            foreign_parts=frozenset() if model.template is None else model.template.part_kinds,
            thinks=formats.reasoning is not None or formats.has_channels,
        ),
        entry=ModelEntry(
            id=model.name,
            context=model.engine.max_context,
            inputs=("image",) if reads_images else (),
            abilities=frozenset((GENERATE,)),
            defaults={name: value for name, value in asdict(model.defaults).items() if value is not None},
        ),
    )


def _lacks(model: LocalModel) -> frozenset[str]:
    """The fields that this model's files rule out."""
    lacks = set()
    if model.infill is None:
        lacks.add("suffix")
    if not model.formats.reads_calls:
        lacks |= {"tools", "tool_choice", "parallel_tool_calls"}
    if model.template is None or not reads_effort(model.template):
        lacks.add("reasoning.effort")
    if model.formats.reasoning is None:
        lacks.add("reasoning.budget_tokens")
    return frozenset(lacks)
