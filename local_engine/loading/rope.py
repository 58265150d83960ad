"""Rotary embedding as config.json and GGUF metadata describe it. Knows no architecture."""

import math
from dataclasses import replace

from local_engine.attention_config import RopeConfig
from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader

__all__ = ["gguf_rope", "hf_partial_rope", "hf_rope", "hf_rope_of", "stretched_context", "yarn_temperature"]

# Corrections to yarn that DeepSeek's models and hand-made files carry.
_GGUF_YARN_REFUSED = ("attn_factor", "yarn_ext_factor", "yarn_log_multiplier")


def hf_rope(fields: FieldReader, max_context: int, *, theta: float = 10000.0) -> RopeConfig:
    """From config.json. max_context: max_position_embeddings. theta: what an absent rope_theta means.

    Raises ModelLoadError for scaling it does not know.
    """
    # transformers 5 writes rope_parameters, theta included; older ones rope_scaling beside rope_theta.
    scaling = fields.table("rope_parameters") or fields.table("rope_scaling")
    return hf_rope_of(fields, scaling, max_context, theta=fields.number("rope_theta", theta))


def hf_partial_rope(fields: FieldReader, config: ModelConfig, *, share: float) -> RopeConfig:
    """From config.json of a model whose heads turn in part. share: which part, where the file does not say.

    config: the shape without that, its head size in particular.
    """
    scaling = fields.table("rope_parameters")
    share = fields.number("partial_rotary_factor", share)
    if scaling is not None:
        share = scaling.number("partial_rotary_factor", share)
    if not 0 < share <= 1:
        fields.refuse(f"partial_rotary_factor is {share}, expected more than 0 and at most 1")
    return replace(hf_rope(fields, config.max_context), rotary_dim=int(config.head_dim * share))


def hf_rope_of(fields: FieldReader, scaling: FieldReader | None, max_context: int, *, theta: float) -> RopeConfig:
    """From one object of config.json that describes a rope, for files with several; None is no scaling."""
    if scaling is None:
        return RopeConfig(theta=theta)
    theta = scaling.number("rope_theta", theta)
    if sections := scaling.integers("mrope_section"):
        rope = hf_rope_of(fields, scaling.without("mrope_section"), max_context, theta=theta)
        return replace(rope, mrope_sections=sections)
    kind = scaling.text("rope_type", scaling.text("type", "default"))
    if kind in ("default", "mrope"):
        return RopeConfig(theta=theta)
    if kind == "linear":
        return RopeConfig(theta=theta, scaling="linear", factor=scaling.number("factor"))
    if kind == "proportional":
        return RopeConfig(
            theta=theta,
            scaling="proportional",
            factor=scaling.number("factor", 1.0),
            turning_share=scaling.number("partial_rotary_factor", 1.0),
        )
    if kind == "llama3":
        return RopeConfig(
            theta=theta,
            scaling="llama3",
            factor=scaling.number("factor"),
            low_freq_factor=scaling.number("low_freq_factor"),
            high_freq_factor=scaling.number("high_freq_factor"),
            original_max_context=scaling.integer("original_max_position_embeddings"),
        )
    if kind in ("longrope", "su"):
        return _hf_longrope(fields, scaling, theta, max_context)
    if kind != "yarn":
        fields.refuse(f"rope scaling {kind!r}, supported are default, linear, llama3, yarn, longrope and proportional")
    return _hf_yarn(scaling, theta, max_context)


def _hf_longrope(fields: FieldReader, scaling: FieldReader, theta: float, max_context: int) -> RopeConfig:
    name = "original_max_position_embeddings"
    original = scaling.integer(name, fields.integer(name, max_context))
    short, long = scaling.numbers("short_factor"), scaling.numbers("long_factor")
    if not short or not long:
        fields.refuse("rope scaling 'longrope' lacks short_factor or long_factor")
    attention_factor = scaling.optional_number("attention_factor")
    if attention_factor is None:
        factor = scaling.number("factor", max_context / max(original, 1))
        attention_factor = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 and original > 1 else 1.0
    return RopeConfig(
        theta=theta,
        scaling="longrope",
        original_max_context=original,
        attention_factor=attention_factor,
        short_factors=short,
        long_factors=long,
    )


def _hf_yarn(scaling: FieldReader, theta: float, max_context: int) -> RopeConfig:
    factor = scaling.number("factor")
    attention_factor = scaling.optional_number("attention_factor")
    if attention_factor is None:
        above, below = scaling.number("mscale", 0.0), scaling.number("mscale_all_dim", 0.0)
        if above > 0 and below > 0:
            attention_factor = yarn_temperature(factor, above) / yarn_temperature(factor, below)
        else:
            attention_factor = yarn_temperature(factor)
    return RopeConfig(
        theta=theta,
        scaling="yarn",
        factor=factor,
        original_max_context=scaling.integer("original_max_position_embeddings", max_context),
        beta_fast=scaling.number("beta_fast", 32.0),
        beta_slow=scaling.number("beta_slow", 1.0),
        truncate=scaling.boolean("truncate", True),
        attention_factor=attention_factor,
    )


def gguf_rope(fields: FieldReader, architecture: str, max_context: int) -> RopeConfig:
    """From a GGUF's keys under `architecture`. max_context: its context_length. Raises ModelLoadError."""
    prefix = f"{architecture}.rope"
    if sections := fields.integers(f"{prefix}.dimension_sections"):
        if len(sections) == 4 and sections[3] == 0:  # llama.cpp knows a fourth axis, which no file has
            sections = sections[:3]
        rope = gguf_rope(fields.without(f"{prefix}.dimension_sections"), architecture, max_context)
        return replace(rope, mrope_sections=sections)
    theta = fields.number(f"{prefix}.freq_base", 10000.0)
    kind = fields.text(f"{prefix}.scaling.type", "none")
    factor = fields.number(f"{prefix}.scaling.factor", 1.0)
    if kind == "none":
        return RopeConfig(theta=theta)
    if kind == "linear":
        return RopeConfig(theta=theta, scaling="linear", factor=factor)
    if kind != "yarn":
        fields.refuse(f"{prefix}.scaling.type {kind!r}, supported are none, linear and yarn")
    for key in _GGUF_YARN_REFUSED:
        if fields.given(f"{prefix}.scaling.{key}"):
            fields.refuse(f"{prefix}.scaling.{key} is not supported")
    return RopeConfig(
        theta=theta,
        scaling="yarn",
        factor=factor,
        original_max_context=fields.integer(f"{prefix}.scaling.original_context_length", max_context),
        beta_fast=fields.number(f"{prefix}.scaling.yarn_beta_fast", 32.0),
        beta_slow=fields.number(f"{prefix}.scaling.yarn_beta_slow", 1.0),
        attention_factor=fields.number(f"{prefix}.scaling.yarn_attn_factor", yarn_temperature(factor)),
    )


def stretched_context(rope: RopeConfig, max_context: int) -> int:
    """The window: the file's own, or what yarn makes of the trained one, as files often give the trained one alone."""
    if rope.scaling != "yarn" or not 1 <= rope.factor <= 1 << 20 or not 1 <= rope.original_max_context <= 1 << 31:
        return max_context
    return max(max_context, int(rope.factor * rope.original_max_context))


def yarn_temperature(factor: float, scale: float = 1.0) -> float:
    """Yarn's correction of the length of queries and keys for a window `factor` times the trained one."""
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0
