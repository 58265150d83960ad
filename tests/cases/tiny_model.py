"""A random Llama in a folder, with a tokenizer of bytes: a real model for cases that need the real engine."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tokenizers
from safetensors.numpy import save_file
from tokenizers import decoders, models, pre_tokenizers

__all__ = ["END_ID", "write_adapter", "write_model"]

END_ID = 256


_HIDDEN, _INNER, _LAYERS, _HEADS, _KV_HEADS = 32, 64, 2, 4, 2


def write_model(folder: Path, *, window: int = 128) -> Path:
    """The model: 256 bytes and an end marker, in float32, the same weights every time."""
    folder.mkdir(exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": END_ID + 1,
        "hidden_size": _HIDDEN,
        "intermediate_size": _INNER,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _KV_HEADS,
        "max_position_embeddings": window,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "eos_token_id": END_ID,
    }
    (folder / "config.json").write_text(json.dumps(config))
    random = np.random.default_rng(0)
    shapes = dict(_shapes())
    weights = {name: 0.3 * random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    weights |= {name: np.ones(shape, np.float32) for name, shape in shapes.items() if "norm" in name}
    save_file(weights, folder / "model.safetensors")
    _write_tokenizer(folder)
    return folder


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (END_ID + 1, _HIDDEN)
    yield "lm_head.weight", (END_ID + 1, _HIDDEN)
    yield "model.norm.weight", (_HIDDEN,)
    kv_width = _HIDDEN // _HEADS * _KV_HEADS
    for layer in range(_LAYERS):
        at = f"model.layers.{layer}"
        yield f"{at}.input_layernorm.weight", (_HIDDEN,)
        yield f"{at}.post_attention_layernorm.weight", (_HIDDEN,)
        for name, rows in (("q", _HIDDEN), ("k", kv_width), ("v", kv_width), ("o", _HIDDEN)):
            yield f"{at}.self_attn.{name}_proj.weight", (rows, _HIDDEN)
        yield f"{at}.mlp.gate_proj.weight", (_INNER, _HIDDEN)
        yield f"{at}.mlp.up_proj.weight", (_INNER, _HIDDEN)
        yield f"{at}.mlp.down_proj.weight", (_HIDDEN, _INNER)


def _write_tokenizer(folder: Path) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))


def write_adapter(folder: Path, *, seed: int) -> Path:
    """A LoRA of rank 2 on the query projections, as peft writes it."""
    folder.mkdir()
    random = np.random.default_rng(seed)
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 8, "target_modules": ["q_proj"], "base_model_name_or_path": ""}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    weights = {}
    for layer in range(_LAYERS):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        weights[f"{name}.lora_A.weight"] = random.standard_normal((2, _HIDDEN), dtype=np.float32)
        weights[f"{name}.lora_B.weight"] = random.standard_normal((_HIDDEN, 2), dtype=np.float32)
    save_file(weights, folder / "adapter_model.safetensors")
    return folder
