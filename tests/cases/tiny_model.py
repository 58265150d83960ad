"""A random Llama in a folder, with a tokenizer of bytes: a real model for cases that need the real engine."""

import json
from pathlib import Path

import numpy as np
import tokenizers
from safetensors.numpy import save_file
from tokenizers import decoders, models, pre_tokenizers

from tests.local_engine.tiny_models import tiny_oracle, write_safetensors

__all__ = ["END_ID", "write_adapter", "write_model"]

END_ID = 256


def write_model(folder: Path, *, window: int = 128) -> Path:
    """The model: 256 bytes and an end marker, in float32, the same weights every time."""
    oracle = tiny_oracle(
        vocab_size=END_ID + 1, max_position_embeddings=window, eos_token_id=END_ID, bos_token_id=END_ID
    )
    write_safetensors(oracle, folder)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))
    return folder


def write_adapter(folder: Path, *, seed: int) -> Path:
    """A LoRA of rank 2 on the query projections, as peft writes it."""
    folder.mkdir()
    random = np.random.default_rng(seed)
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 8, "target_modules": ["q_proj"], "base_model_name_or_path": ""}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    weights = {}
    for layer in range(2):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        weights[f"{name}.lora_A.weight"] = random.standard_normal((2, 32), dtype=np.float32)
        weights[f"{name}.lora_B.weight"] = random.standard_normal((32, 2), dtype=np.float32)
    save_file(weights, folder / "adapter_model.safetensors")
    return folder
