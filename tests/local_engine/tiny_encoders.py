"""Random encoders of a few kilobytes, written as safetensors and as GGUF, with transformers as the oracle."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from local_engine.encoding import EncoderInput

__all__ = ["VOCAB_SIZE", "EncoderOracle", "tiny_encoder", "write_bert_gguf", "write_folder", "write_layout"]

VOCAB_SIZE = 96
_PARTS = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_WHOLE = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "classifier.dense": "cls",
    "classifier.out_proj": "cls.output",
}


@dataclass(frozen=True)
class EncoderOracle:
    """transformers' own model, in float32."""

    model: Any

    def hidden(self, token_ids: tuple[int, ...]) -> torch.Tensor:
        """[T, H], the last hidden states."""
        with torch.inference_mode():
            hidden: torch.Tensor = self.model(torch.tensor([token_ids])).last_hidden_state[0]
        return hidden

    def logit(self, pair: EncoderInput) -> float:
        types = None if pair.type_ids is None else torch.tensor([pair.type_ids])
        with torch.inference_mode():
            return float(self.model(torch.tensor([pair.token_ids]), token_type_ids=types).logits[0, 0])


def tiny_encoder(kind: str = "bert", *, scores: bool = False, seed: int = 0, **overrides: Any) -> EncoderOracle:
    """kind: transformers' model_type."""
    values: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 40,
        "type_vocab_size": 2 if kind == "bert" else 1,
        "num_labels": 1,
    }
    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind, **(values | overrides))
    model = (AutoModelForSequenceClassification if scores else AutoModel).from_config(config)
    for name, weight in model.named_parameters():
        if "LayerNorm.weight" in name:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
        else:
            torch.nn.init.normal_(weight, std=0.3)
    return EncoderOracle(model.eval())


def write_folder(oracle: EncoderOracle, folder: Path, **more: object) -> Path:
    """Safetensors and config.json, `more` beside its own keys."""
    oracle.model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | more))
    return folder


def write_layout(folder: Path, mode: str, *, normalize: bool = True, max_tokens: int | None = None) -> None:
    """The files that sentence-transformers puts beside a model. mode: the pooling switch that is on."""
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), *([("Normalize", "2_Normalize")] if normalize else [])]
    rows = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in modules]
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{mode}": True}))
    if max_tokens is not None:
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": max_tokens}))


def write_bert_gguf(oracle: EncoderOracle, path: Path, *, pooling: int, leave_out: str = "") -> Path:
    """The model as llama.cpp's converter writes it: architecture bert, positions from the first one on."""
    config = oracle.model.config
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_eps(config.layer_norm_eps)
    writer.add_causal_attention(False)
    writer.add_uint32("bert.pooling_type", pooling)
    offset = config.pad_token_id + 1 if config.model_type != "bert" else 0
    for name, weight in oracle.model.state_dict().items():
        stored = _gguf_name(name)
        if stored is None or stored == leave_out:
            continue
        values = weight.detach().numpy().astype(np.float32)
        writer.add_tensor(stored, values[offset:] if stored == "position_embd.weight" else values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_name(name: str) -> str | None:
    stem, _, kind = name.removeprefix("roberta.").removeprefix("bert.").rpartition(".")
    if stem in _WHOLE:
        return f"{_WHOLE[stem]}.{kind}"
    if not stem.startswith("encoder.layer."):
        return None
    _, _, index, part = stem.split(".", 3)
    return f"blk.{index}.{_PARTS[part]}.{kind}"
