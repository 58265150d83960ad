"""The real SmolLM2 as transformers computes it in float32, read from the GGUF by the gguf package alone."""

from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from providers.local.tokenizer import load_tokenizer
from tests.local_engine.tiny_models import Oracle

__all__ = ["prose_tokens", "reference_model"]

_HEADS = {"q_proj": 9, "k_proj": 3}
_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def reference_model(path: Path) -> Oracle:
    """SmolLM2-135M. Shapes and constants are those of its paper, not of our reader."""
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
    )
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    weights = {}
    for name in model.state_dict():
        if name == "lm_head.weight":
            continue
        tensor = stored[f"{_gguf_name(name.removesuffix('.weight'))}.weight"]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        heads = _HEADS.get(name.split(".")[-2])
        if heads is not None:  # pairs of rows back to first and second halves of each head
            values = values.reshape(heads, -1, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        weights[name] = torch.from_numpy(np.array(values, dtype=np.float32))
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return Oracle(model.eval())


def _gguf_name(name: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    _, _, index, *part = name.split(".")
    return f"blk.{index}.{_NAMES['.'.join(part)]}"


def prose_tokens(path: Path, *, limit: int | None = None) -> list[int]:
    """The fixed text in the model's tokens."""
    text = Path(__file__).with_name("prose.txt").read_text(encoding="utf-8")
    return load_tokenizer(path).encode(text, add_special_tokens=False)[:limit]
