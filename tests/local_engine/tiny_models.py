"""Random models of a few kilobytes, written as safetensors and as GGUF, with transformers as the oracle."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from operator import eq
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from tests.local_engine.tiny_experts import add_experts, with_split_experts
from tests.local_engine.tiny_gemma4 import GEMMA4, gemma4_kv_heads, gemma4_widths, with_gguf_gemma4
from tests.local_engine.tiny_gguf_keys import (
    INTERLEAVED,
    NORMS_FROM_ONE,
    add_layer_keys,
    gguf_architecture,
    with_split_latent,
)
from tests.local_engine.tiny_nemotron_h import NEMOTRON_H, nemotron_h_widths, with_gguf_nemotron_h
from tests.local_engine.tiny_recurrent import kv_heads, with_gguf_states

VOCAB_SIZE = 128
STOP_ID = 7
_TOWERS: Mapping[str, Mapping[str, Any]] = {
    "gemma4": {
        "vision_config": {
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "position_embedding_size": 8,
        }
    },
    "llama4": {
        "vision_config": {
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "patch_size": 4,
            "image_size": 16,
            "vision_output_dim": 16,
            "projector_input_dim": 16,
            "projector_output_dim": 16,
        },
    },
    "mistral3": {
        "tie_word_embeddings": False,
        "vision_config": {
            "model_type": "pixtral",
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "head_dim": 8,
            "patch_size": 4,
            "image_size": 16,
        },
    },
}
"""Of the models that have a tower beside the text model."""


@dataclass(frozen=True)
class Oracle:
    """transformers' own model, in float32, whose weights stay as they are."""

    model: Any
    _answers: dict[tuple[int, ...], list[int]] = field(default_factory=dict, compare=False)

    def logits(self, tokens: list[int]) -> torch.Tensor:
        """[T, V] for every position."""
        # Llama 4 with its tower computes nothing without images there.
        model = self.model.language_model if self.model.config.model_type == "llama4" else self.model
        with torch.inference_mode():
            logits: torch.Tensor = model(torch.tensor([tokens])).logits[0]
        return logits

    def greedy(self, prompt: list[int], count: int, guess: Sequence[int] = ()) -> list[int]:
        """The next `count` tokens, each the likeliest after all before it. They are computed once.

        guess: what they may be. All that are right at the front are found in one pass, where others take one each.
        """
        answer = self._answers.setdefault(tuple(prompt), [])

        def likeliest(answer: list[int]) -> list[int]:
            found: list[int] = self.logits([*prompt, *answer])[len(prompt) - 1 :].argmax(-1).tolist()
            return found

        lengthen(answer, count, likeliest, guess)
        return answer[:count]


def lengthen(answer: list[int], count: int, likeliest: Callable[[list[int]], list[int]], guess: Sequence[int]) -> None:
    """Adds to a greedy answer until it has `count` tokens. likeliest: the token at each place of an answer, and behind
    it, that is the likeliest after all before it. guess: see `Oracle.greedy`."""
    while (known := len(answer)) < count:
        tried = [*answer, *guess[known:]][: count - 1]
        found = likeliest(tried)[known:]
        right = sum(1 for _ in takewhile(bool, map(eq, found, tried[known:])))
        answer += found[: right + 1]


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
    if kind in _TOWERS:
        config = AutoConfig.for_model(kind, text_config=values | overrides, **_TOWERS[kind])
        auto: Any = AutoModelForImageTextToText
    else:
        config, auto = AutoConfig.for_model(kind, **(values | overrides)), AutoModelForCausalLM
    # The other implementations of attention leave soft caps out.
    model = auto.from_config(config, attn_implementation="eager")
    least = -0.5 if gguf_architecture(config.get_text_config()) in NORMS_FROM_ONE else 0.5
    for name, weight in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(weight, least, least + 1)
        else:
            torch.nn.init.normal_(weight, std=0.3)
    for name, numbers in model.named_buffers():
        if name.endswith(("e_score_correction_bias", "expert_bias")):
            torch.nn.init.normal_(numbers, std=0.3)
        if name.endswith("layer_scalar"):
            torch.nn.init.uniform_(numbers, 0.5, 1.5)
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
    add_vocabulary: Callable[[gguf.GGUFWriter], None] | None = None,
    quantise: Callable[[np.ndarray, gguf.GGMLQuantizationType], np.ndarray] = gguf.quants.quantize,
) -> Path:
    """The model as llama.cpp's converter writes it: Llama's Q and K rows interleaved, matrices in `matrix_type`.

    quantise: makes rows of that type.
    """
    config = oracle.model.config.get_text_config()
    writer = gguf.GGUFWriter(path, gguf_architecture(config))
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    width = getattr(config, "intermediate_size_mlp", config.intermediate_size)
    widths = {GEMMA4: gemma4_widths, NEMOTRON_H: nemotron_h_widths}.get(config.model_type)
    writer.add_feed_forward_length(width if widths is None else widths(config))
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(gemma4_kv_heads(config) if config.model_type == GEMMA4 else kv_heads(config))
    tensors = add_layer_keys(writer, config)
    for key, value in (numbers or {}).items():
        writers = {bool: writer.add_bool, int: writer.add_int32, float: writer.add_float32}
        writers[type(value)](key, value)
    (add_vocabulary or add_named_tokens)(writer)
    if config.model_type not in (GEMMA4, NEMOTRON_H):
        add_experts(writer, config)
    weights = _text_tensors(oracle)
    if config.model_type == GEMMA4:
        weights = with_gguf_gemma4(weights)
    elif config.model_type == NEMOTRON_H:
        weights = with_gguf_nemotron_h(weights, config)
    else:
        weights = with_split_latent(with_split_experts(weights), config)
    if config.model_type == "apertus":
        weights = add_apertus(writer, weights)
    for name, weight in with_gguf_states(weights, config).items():
        if name != "lm_head.weight" or not config.tie_word_embeddings:
            tensors[_gguf_name(name, config)] = _stored(name, weight, config)
    for name, values in (tensors | (extra or {})).items():
        if name == leave_out:
            continue
        # As the converter leaves convolutions.
        if values.ndim > 1 and values.shape[-1] % 32 == 0 and matrix_type is not gguf.GGMLQuantizationType.F32:
            writer.add_tensor(name, quantise(values, matrix_type), raw_dtype=matrix_type)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _text_tensors(oracle: Oracle) -> dict[str, torch.Tensor]:
    """Those of the text model, by the names that it has without a tower beside it."""
    tensors: dict[str, torch.Tensor] = oracle.model.state_dict()
    prefix = "model.language_model."
    if oracle.model.config.model_type == "llama4":
        prefix = "language_model."
        return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if not any(name.startswith(prefix) for name in tensors):
        return tensors
    found = {f"model.{name.removeprefix(prefix)}": tensor for name, tensor in tensors.items() if prefix in name}
    return found | {"lm_head.weight": tensors["lm_head.weight"]}


def add_apertus(writer: gguf.GGUFWriter, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Writes the numbers of the activations as metadata, and returns the other tensors."""
    for part, add in (
        ("alpha_p", writer.add_xielu_alpha_p),
        ("alpha_n", writer.add_xielu_alpha_n),
        ("beta", writer.add_xielu_beta),
        ("eps", writer.add_xielu_eps),
    ):
        add([float(tensor) for name, tensor in tensors.items() if name.endswith(f".act_fn.{part}")])
    return {name: tensor for name, tensor in tensors.items() if ".act_fn." not in name}


def add_named_tokens(writer: gguf.GGUFWriter, names: Mapping[int, str] | None = None) -> None:
    """A vocabulary that no tokenizer is made of. names: of tokens that have one."""
    writer.add_eos_token_id(STOP_ID)
    writer.add_uint32("tokenizer.ggml.eot_token_id", 9)
    writer.add_token_list([(names or {}).get(index, f"token{index}") for index in range(VOCAB_SIZE)])
    writer.add_array("tokenizer.ggml.scores", [0.5] * VOCAB_SIZE)


_gguf_names = lru_cache(gguf.get_tensor_name_map)  # a table takes some milliseconds, and each tensor asks


def _gguf_name(name: str, config: Any) -> str:
    """By the gguf package's own tables."""
    kind = gguf_architecture(config)
    architecture = next(each for each, text in gguf.MODEL_ARCH_NAMES.items() if text == kind)
    if name.startswith("blk."):
        return name
    names = _gguf_names(architecture, config.num_hidden_layers)
    found: str | None = names.get_name(name, try_suffixes=(".weight", ".bias"))
    assert found is not None, name
    return found


def _stored(name: str, weight: torch.Tensor, config: Any) -> np.ndarray:
    values = weight.detach().numpy().astype(np.float32)
    architecture = gguf_architecture(config)
    if architecture in NORMS_FROM_ONE and name.endswith("norm.weight"):
        return values + 1
    if architecture not in INTERLEAVED:
        return values
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, count in heads.items():
        if part in name:
            # From (first half, second half) of each head to pairs of rows.
            halves = values.reshape(count, 2, values.shape[0] // count // 2, *values.shape[1:])
            return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
    return values
