"""Random models of a few kilobytes, written as safetensors and as GGUF, with transformers as the oracle."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.local_engine.tiny_experts import add_experts, with_split_experts

VOCAB_SIZE = 128
STOP_ID = 7

# What a GGUF calls the architectures of transformers.
_GGUF_ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
    "smollm3": "smollm3",
    "mixtral": "llama",
    "qwen3_moe": "qwen3moe",
    "gpt_oss": "gpt-oss",
}
_INTERLEAVED = ("llama", "smollm3")
_NORMS_FROM_ONE = ("gemma2", "gemma3")


@dataclass(frozen=True)
class Oracle:
    """transformers' own model, in float32."""

    model: Any

    def logits(self, tokens: list[int]) -> torch.Tensor:
        """[T, V] for every position."""
        with torch.inference_mode():
            logits: torch.Tensor = self.model(torch.tensor([tokens])).logits[0]
        return logits

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        """The next `count` tokens, each the likeliest after all before it."""
        tokens = list(prompt)
        for _ in range(count):
            tokens.append(int(self.logits(tokens)[-1].argmax()))
        return tokens[len(prompt) :]


def tiny_oracle(seed: int = 0, *, kind: str = "llama", **overrides: Any) -> Oracle:
    """A random model whose logits differ clearly from token to token. kind: transformers' model_type."""
    values: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
        "eos_token_id": STOP_ID,
        "bos_token_id": 1,
        "rms_norm_eps": 1e-5,
    }
    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind, **(values | overrides))
    # The other implementations of attention leave soft caps out.
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    least = -0.5 if kind.startswith("gemma") else 0.5
    for name, weight in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(weight, least, least + 1)
        else:
            torch.nn.init.normal_(weight, std=0.3)
    return Oracle(model.eval())


def write_safetensors(oracle: Oracle, folder: Path, *, shard_bytes: int = 1 << 30) -> Path:
    oracle.model.save_pretrained(folder, max_shard_size=shard_bytes)
    return folder


def write_gguf(
    oracle: Oracle,
    path: Path,
    *,
    matrix_type: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    extra: dict[str, np.ndarray] | None = None,
    leave_out: str | None = None,
    numbers: Mapping[str, int | float] | None = None,
) -> Path:
    """The model as llama.cpp's converter writes it: Llama's Q and K rows interleaved, matrices in `matrix_type`."""
    config = oracle.model.config
    writer = gguf.GGUFWriter(path, _GGUF_ARCHITECTURES[config.model_type])
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    head_dim = getattr(config, "head_dim", None)
    if head_dim is not None:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    tensors = _add_attention(writer, config)
    writer.add_eos_token_id(STOP_ID)
    writer.add_uint32("tokenizer.ggml.eot_token_id", 9)
    for key, value in (numbers or {}).items():
        writers = {bool: writer.add_bool, int: writer.add_int32, float: writer.add_float32}
        writers[type(value)](key, value)
    writer.add_token_list([f"token{index}" for index in range(VOCAB_SIZE)])
    writer.add_array("tokenizer.ggml.scores", [0.5] * VOCAB_SIZE)
    add_experts(writer, config)
    for name, weight in with_split_experts(oracle.model.state_dict()).items():
        if name != "lm_head.weight" or not config.tie_word_embeddings:
            tensors[_gguf_name(name, config)] = _stored(name, weight, config)
    for name, values in (tensors | (extra or {})).items():
        if name == leave_out:
            continue
        if values.ndim > 1 and matrix_type is not gguf.GGMLQuantizationType.F32:
            writer.add_tensor(name, gguf.quants.quantize(values, matrix_type), raw_dtype=matrix_type)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_attention(writer: gguf.GGUFWriter, config: Any) -> dict[str, np.ndarray]:
    """Rope, windows and caps. Returns what of them is a tensor."""
    rope = config.rope_parameters
    if config.model_type == "gemma3_text":
        rope = rope["full_attention"]
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if config.model_type == "phi3":
        writer.add_rope_dimension_count(
            int(rope["partial_rotary_factor"] * config.hidden_size) // config.num_attention_heads
        )
        writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
        writer.add_sliding_window(config.sliding_window or 0)
    elif getattr(config, "sliding_window", None) is not None:
        writer.add_sliding_window(config.sliding_window)
    if config.model_type.startswith("qwen") and config.sliding_window is not None:
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
    if getattr(config, "attn_logit_softcapping", None) is not None:
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    if getattr(config, "final_logit_softcapping", None) is not None:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if rope["rope_type"] != "longrope":
        return {}
    original = config.original_max_position_embeddings
    scale = config.max_position_embeddings / original
    writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0)
    return {
        f"rope_factors_{kind}.weight": np.asarray(rope[f"{kind}_factor"], dtype=np.float32)
        for kind in ("short", "long")
    }


def _gguf_name(name: str, config: Any) -> str:
    """By the gguf package's own tables."""
    kind = _GGUF_ARCHITECTURES[config.model_type]
    architecture = next(each for each, text in gguf.MODEL_ARCH_NAMES.items() if text == kind)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    found: str | None = names.get_name(name, try_suffixes=(".weight", ".bias"))
    assert found is not None, name
    return found


def _stored(name: str, weight: torch.Tensor, config: Any) -> np.ndarray:
    values = weight.detach().numpy().astype(np.float32)
    architecture = _GGUF_ARCHITECTURES[config.model_type]
    if architecture in _NORMS_FROM_ONE and "norm" in name:
        return values + 1
    if architecture not in _INTERLEAVED:
        return values
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, count in heads.items():
        if part in name:
            # From (first half, second half) of each head to pairs of rows.
            halves = values.reshape(count, 2, values.shape[0] // count // 2, *values.shape[1:])
            return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
    return values
