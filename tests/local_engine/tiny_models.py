"""Random models of a few kilobytes, written as safetensors and as GGUF, with transformers as the oracle."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

VOCAB_SIZE = 128
STOP_ID = 7

# What a GGUF calls the architectures of transformers.
_GGUF_ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
_INTERLEAVED = "llama"

_GGUF_PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


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
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **(values | overrides)))
    for name, weight in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
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
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if config.rope_parameters["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(config.rope_parameters["factor"])
        writer.add_rope_scaling_orig_ctx_len(config.rope_parameters["original_max_position_embeddings"])
    writer.add_eos_token_id(STOP_ID)
    writer.add_uint32("tokenizer.ggml.eot_token_id", 9)
    if getattr(config, "sliding_window", None) is not None:
        writer.add_sliding_window(config.sliding_window)
    for key, value in (numbers or {}).items():
        (writer.add_float32 if isinstance(value, float) else writer.add_int32)(key, value)
    writer.add_token_list([f"token{index}" for index in range(VOCAB_SIZE)])
    writer.add_array("tokenizer.ggml.scores", [0.5] * VOCAB_SIZE)
    tensors = {_gguf_name(name): _stored(name, weight, config) for name, weight in oracle.model.state_dict().items()}
    if config.tie_word_embeddings:
        del tensors["output.weight"]
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


def _gguf_name(name: str) -> str:
    whole = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in whole:
        return whole[name]
    _, _, index, *part, kind = name.split(".")
    return f"blk.{index}.{_GGUF_PARTS['.'.join(part)]}.{kind}"


def _stored(name: str, weight: torch.Tensor, config: Any) -> np.ndarray:
    values = weight.detach().numpy().astype(np.float32)
    if _GGUF_ARCHITECTURES[config.model_type] != _INTERLEAVED:
        return values
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, count in heads.items():
        if part in name:
            # From (first half, second half) of each head to pairs of rows.
            halves = values.reshape(count, 2, values.shape[0] // count // 2, *values.shape[1:])
            return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
    return values
