"""A value for every parameter that clients of OpenAI's surfaces send, and what else its body has to have with it."""

from collections.abc import Mapping
from typing import Any

__all__ = ["SAMPLES", "SURFACES"]

SURFACES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "abab"}], "max_tokens": 4}),
    "completions": ("/v1/completions", {"prompt": "abab", "max_tokens": 4}),
    "responses": ("/v1/responses", {"input": "abab", "max_output_tokens": 4, "store": False}),
}
"""The path of each, and a body that asks for nothing besides an answer."""

_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
_FLAT_TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
_SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}


class Sample:
    """`value` of the field; `on`: another value on a surface; `beside`: what else its body has to have there."""

    def __init__(self, value: Any, beside: Mapping[str, Mapping[str, Any]] | None = None, **on: Any) -> None:
        self.value = value
        self.beside = beside or {}
        self.on = on

    def fields(self, name: str, surface: str) -> dict[str, Any]:
        return {**self.beside.get(surface, {}), name: self.on.get(surface, self.value)}


def _plain(**values: Any) -> dict[str, Sample]:
    return {name: Sample(value) for name, value in values.items()}


_WITH_TOOL: dict[str, Mapping[str, Any]] = {"chat": {"tools": [_TOOL]}, "responses": {"tools": [_FLAT_TOOL]}}
_LOGPROBS: dict[str, Mapping[str, Any]] = {
    "chat": {"logprobs": True},
    "completions": {"logprobs": 0},
    "responses": {"include": ["message.output_text.logprobs"]},
}
_NO_LIMIT = {
    "chat": {"max_tokens": None},
    "completions": {"max_tokens": None},
    "responses": {"max_output_tokens": None},
}
_STREAM = {surface: {"stream": True} for surface in SURFACES}
OPENAI: dict[str, Sample] = {
    **_plain(
        audio={"voice": "v", "format": "wav"},
        background=True,
        best_of=2,
        conversation="conv_1",
        echo=True,
        frequency_penalty=0.5,
        function_call="auto",
        functions=[{"name": "f"}],
        include=["reasoning.encrypted_content"],
        instructions="Be brief.",
        logit_bias={"97": 5},
        max_completion_tokens=3,
        max_output_tokens=3,
        max_tokens=3,
        max_tool_calls=1,
        metadata={"k": "v"},
        modalities=["text"],
        moderation={"model": "m"},
        n=2,
        prediction={"type": "content", "content": "t"},
        presence_penalty=0.5,
        previous_response_id="resp_1",
        prompt_cache_key="k",
        prompt_cache_options={"mode": "implicit"},
        prompt_cache_retention="24h",
        reasoning_effort="low",
        response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": _SCHEMA}},
        safety_identifier="s",
        seed=3,
        service_tier="auto",
        stop=["q", "r", "s", "t", "u"],
        store=False,
        suffix="b",
        temperature=0.5,
        text={"format": {"type": "json_object"}},
        top_p=0.5,
        truncation="auto",
        user="u",
        verbosity="low",
        web_search_options={},
    ),
    "reasoning": Sample({"effort": "low"}),
    "logprobs": Sample(True, completions=2),
    "parallel_tool_calls": Sample(False, _WITH_TOOL),
    "stream": Sample(True),
    "stream_options": Sample(
        {"include_usage": True, "continuous_usage_stats": True}, _STREAM, responses={"include_obfuscation": False}
    ),
    "tool_choice": Sample("none", _WITH_TOOL),
    "tools": Sample([_TOOL], responses=[_FLAT_TOOL]),
    "top_logprobs": Sample(2, {"chat": _LOGPROBS["chat"]}),
}
ENGINE: dict[str, Sample] = {
    **_plain(
        add_generation_prompt=False,
        add_special_tokens=True,
        allowed_token_ids=[70, 71],
        bad_words=["x"],
        bootstrap_host="h",
        cache_salt="s",
        chat_template="{{ messages[0].content }}",
        chat_template_kwargs={"x": 1},
        continue_final_message=True,
        conversation_params={},
        detokenize=False,
        disaggregated_params={},
        documents=[{"text": "d"}],
        early_stopping=True,
        ec_transfer_params={},
        embed_overrides={},
        ignore_eos=True,
        include_reasoning=False,
        include_stop_str_in_output=True,
        kv_transfer_params={},
        length_penalty=0.5,
        min_p=0.1,
        min_tokens=2,
        priority=1,
        prompt_embeds="x",
        prompt_logprobs=1,
        prompt_token_ids=[66, 67],
        repetition_penalty=1.1,
        request_id="r1",
        return_context_logits=True,
        return_token_ids=True,
        return_tokens_as_token_ids=True,
        routed_dp_rank=1,
        separate_reasoning=False,
        session_id="s1",
        skip_special_tokens=False,
        spaces_between_special_tokens=False,
        stop_regex="a+",
        stop_token_ids=[5],
        thinking_token_budget=2,
        top_k=5,
        top_p_min=0.1,
        truncate_prompt_tokens=2,
        typical_p=0.9,
        use_beam_search=True,
    ),
    "logprob_token_ids": Sample([66], _LOGPROBS),
}
ALIASES: dict[str, Sample] = {
    **_plain(
        ban_eos_token=False,
        cache_prompt=True,
        dry_allowed_length=2,
        dry_base=1.75,
        dry_multiplier=0.8,
        dry_penalty_last_n=64,
        dry_sequence_breakers=["x"],
        dynatemp_exponent=1.0,
        dynatemp_range=0.5,
        enable_thinking=True,
        id_slot=-1,
        input_ids=[66, 67],
        lora_path="lora",
        lora_request={"lora_name": "lora", "lora_int_id": 1},
        min_new_tokens=2,
        mirostat=0,
        mirostat_eta=0.1,
        mirostat_tau=5.0,
        n_probs=0,
        no_stop_trim=True,
        post_sampling_probs=False,
        random_seed=3,
        reasoning_budget_tokens=2,
        reasoning_format="none",
        repeat_last_n=64,
        repeat_penalty=1.1,
        return_progress=False,
        return_tokens=True,
        rid="r1",
        safe_prompt=False,
        samplers=["dry", "top_k", "min_p", "temperature"],
        smoothing_curve=1.0,
        smoothing_factor=0.0,
        stream_reasoning=True,
        temperature_last=True,
        tfs_z=1.0,
        thinking={"type": "enabled", "budget_tokens": 2},
        thinking_budget=2,
        timings_per_token=False,
        top_a=0.0,
        top_n_sigma=1.0,
        typical=0.9,
        xtc_probability=0.5,
        xtc_threshold=0.1,
    ),
    "max_new_tokens": Sample(3, _NO_LIMIT),
    "n_predict": Sample(3, _NO_LIMIT),
}
SAMPLES: dict[str, Sample] = {**OPENAI, **ENGINE, **ALIASES}
