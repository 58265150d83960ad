"""BERT (Devlin et al. 2018) and RoBERTa (Liu et al. 2019), XLM-R included: encoders of whole texts, both ways at once.

With a classification head of one label they are cross-encoders, which score a pair of texts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from local_engine.encoding import EncoderInfo, EncoderInput
from local_engine.layers.linear import Linear
from local_engine.layers.ops import Ops
from local_engine.layers.pooling import Pooling, normalized, pooled
from local_engine.loading.fields import FieldReader
from local_engine.loading.weights import GgufName, Weights

__all__ = ["Bert", "BertConfig", "gguf_config", "gguf_names", "hf_config"]

_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}
Head = Literal["bert", "roberta"]


@dataclass(frozen=True, slots=True)
class BertConfig:
    """position_offset: the row of the first position, since RoBERTa counts from behind its padding token.

    head: how a pair's score comes from the first token, None for embeddings. sigmoid: scores are from 0 to 1.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_positions: int
    num_types: int
    norm_eps: float
    activation: str = "gelu"
    position_offset: int = 0
    head: Head | None = None
    sigmoid: bool = True

    def problem(self) -> str | None:
        """One line naming the first impossible value, or None. Files are untrusted: every number is checked."""
        for name, value, high in (
            ("vocab_size", self.vocab_size, 1 << 24),
            ("hidden_size", self.hidden_size, 1 << 20),
            ("intermediate_size", self.intermediate_size, 1 << 22),
            ("num_layers", self.num_layers, 1 << 12),
            ("num_heads", self.num_heads, 1 << 14),
            ("num_positions", self.num_positions - self.position_offset, 1 << 31),
            ("num_types", self.num_types, 1 << 10),
        ):
            if not 1 <= value <= high:
                return f"{name} is {value}, expected 1 to {high}"
        if self.hidden_size % self.num_heads:
            return f"hidden_size {self.hidden_size} does not divide over {self.num_heads} heads"
        if not 0 < self.norm_eps < 1:
            return f"layer_norm_eps is {self.norm_eps}, expected a small positive number"
        if self.activation not in _ACTIVATIONS:
            return f"hidden_act {self.activation!r}, expected one of {', '.join(_ACTIVATIONS)}"
        return None

    @property
    def max_tokens(self) -> int:
        return self.num_positions - self.position_offset


@dataclass(frozen=True, slots=True)
class _Norm:
    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor, eps: float) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, eps)


@dataclass(frozen=True, slots=True)
class _Layer:
    qkv: Linear
    attended: Linear
    attention_norm: _Norm
    up: Linear
    down: Linear
    output_norm: _Norm


class Bert:
    """Implements `EncoderModel`. Texts of one length are computed together, without padding."""

    def __init__(
        self, config: BertConfig, info: EncoderInfo, weights: Weights, ops: Ops, *, pooling: Pooling = "cls"
    ) -> None:
        self.info = info
        self._config = config
        self._pooling = pooling
        self._activation = _ACTIVATIONS[config.activation]
        hidden, wide = config.hidden_size, config.intermediate_size
        prefix = next((prefix for prefix in ("bert.", "roberta.") if weights.has(f"{prefix}{_WORDS}")), "")

        def linear(parts: Sequence[str], rows: int, columns: int) -> Linear:
            weight = weights.stacked([f"{name}.weight" for name in parts], [rows] * len(parts), columns)
            return ops.linear(weight, weights.joined([f"{name}.bias" for name in parts], [rows] * len(parts)))

        def norm(name: str) -> _Norm:
            return _Norm(weights.joined([f"{name}.weight"], [hidden]), weights.joined([f"{name}.bias"], [hidden]))

        def table(name: str, rows: int) -> Tensor:
            return weights.stacked([f"{prefix}embeddings.{name}.weight"], [rows], hidden)

        self._words = table("word_embeddings", config.vocab_size)
        self._positions = table("position_embeddings", config.num_positions)
        self._types = table("token_type_embeddings", config.num_types)
        self._norm = norm(f"{prefix}embeddings.LayerNorm")
        weights.skip(f"{prefix}embeddings.position_ids")
        self._layers = []
        for index in range(config.num_layers):
            at = f"{prefix}encoder.layer.{index}"
            self._layers.append(
                _Layer(
                    qkv=linear([f"{at}.attention.self.{part}" for part in ("query", "key", "value")], hidden, hidden),
                    attended=linear([f"{at}.attention.output.dense"], hidden, hidden),
                    attention_norm=norm(f"{at}.attention.output.LayerNorm"),
                    up=linear([f"{at}.intermediate.dense"], wide, hidden),
                    down=linear([f"{at}.output.dense"], hidden, wide),
                    output_norm=norm(f"{at}.output.LayerNorm"),
                )
            )
        self._head: tuple[Linear, Linear] | None = None
        if config.head is not None:
            dense, out = _HEADS[config.head]
            self._head = linear([dense.format(prefix)], hidden, hidden), linear([out], 1, hidden)
        else:
            for kind in ("weight", "bias"):  # of next-sentence prediction, which no embedding uses
                weights.skip(f"{prefix}pooler.dense.{kind}")

    def rows(self, inputs: Sequence[EncoderInput]) -> Tensor:
        """See `EncoderModel.rows`."""
        order = sorted(range(len(inputs)), key=lambda place: len(inputs[place].token_ids))
        sorted_inputs = [inputs[place] for place in order]
        lengths = [len(each.token_ids) for each in sorted_inputs]
        hidden = self._hidden(sorted_inputs, lengths)
        if self._head is None:
            rows = pooled(hidden, lengths, self._pooling)
            rows = normalized(rows) if self.info.normalized else rows
        else:
            dense, out = self._head
            rows = out(torch.tanh(dense(pooled(hidden, lengths, "cls").to(hidden.dtype)))).float()
            rows = torch.sigmoid(rows) if self._config.sigmoid else rows
        return torch.empty_like(rows).index_copy_(0, torch.tensor(order, device=rows.device), rows)

    def _hidden(self, inputs: Sequence[EncoderInput], lengths: Sequence[int]) -> Tensor:
        """[T, hidden_size], text after text, in order of their lengths."""
        config, device = self._config, self._words.device
        token_ids = torch.tensor([token for each in inputs for token in each.token_ids], device=device)
        type_ids = torch.tensor(
            [kind for each in inputs for kind in each.type_ids or [0] * len(each.token_ids)], device=device
        ).clamp_(max=config.num_types - 1)
        positions = torch.cat([torch.arange(length, device=device) for length in lengths]) + config.position_offset
        hidden = F.embedding(token_ids, self._words) + F.embedding(type_ids, self._types)
        hidden = self._norm(hidden + F.embedding(positions, self._positions), config.norm_eps)
        groups = [(length, len(list(alike))) for length, alike in groupby(lengths)]
        for layer in self._layers:
            attended = self._attend(layer.qkv(hidden), groups)
            hidden = layer.attention_norm(hidden + layer.attended(attended), config.norm_eps)
            widened = layer.down(self._activation(layer.up(hidden)))
            hidden = layer.output_norm(hidden + widened, config.norm_eps)
        return hidden

    def _attend(self, qkv: Tensor, groups: list[tuple[int, int]]) -> Tensor:
        """qkv [T, 3 * hidden] -> [T, hidden], each token to all of its text. groups: (length, texts) in order."""
        heads = self._config.num_heads
        outputs = []
        row = 0
        for length, count in groups:
            rows = qkv[row : row + length * count].view(count, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(rows[0], rows[1], rows[2])
            outputs.append(attended.transpose(1, 2).reshape(length * count, -1))
            row += length * count
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


_WORDS = "embeddings.word_embeddings.weight"
_HEADS: Mapping[Head, tuple[str, str]] = {
    # The dense layer over the first token (with the place of a prefix), and the one that gives the label.
    "bert": ("{}pooler.dense", "classifier"),
    "roberta": ("classifier.dense", "classifier.out_proj"),
}


def hf_config(fields: FieldReader, *, roberta: bool, scores: bool) -> BertConfig:
    """config.json of Bert and Roberta models. Raises ModelLoadError for what is not implemented, naming it."""
    kind = fields.text("position_embedding_type", "absolute")
    if kind != "absolute":
        fields.refuse(f"position_embedding_type {kind!r}, expected 'absolute'")
    if fields.boolean("is_decoder", False):
        fields.refuse("is_decoder is true, expected an encoder")
    return BertConfig(
        vocab_size=fields.integer("vocab_size"),
        hidden_size=fields.integer("hidden_size"),
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=fields.integer("num_hidden_layers"),
        num_heads=fields.integer("num_attention_heads"),
        num_positions=fields.integer("max_position_embeddings", 512),
        num_types=fields.integer("type_vocab_size", 2),
        norm_eps=fields.number("layer_norm_eps", 1e-12),
        activation=fields.text("hidden_act", "gelu"),
        position_offset=fields.integer("pad_token_id", 1) + 1 if roberta else 0,
        head=("roberta" if roberta else "bert") if scores else None,
    )


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]], *, scores: bool) -> BertConfig:
    """Metadata of a GGUF of architecture bert; its table of positions begins with the first position."""
    if fields.boolean("bert.attention.causal", False):
        fields.refuse("bert.attention.causal is true, expected an encoder")
    if scores and "cls.output.weight" not in tensor_shapes:
        fields.refuse("the tensor cls.output.weight is missing: a score comes from two layers")
    words, positions, types = (
        tensor_shapes.get(f"{name}.weight", (0,)) for name in ("token_embd", "position_embd", "token_types")
    )
    return BertConfig(
        vocab_size=words[0],
        hidden_size=fields.integer("bert.embedding_length"),
        intermediate_size=fields.integer("bert.feed_forward_length"),
        num_layers=fields.integer("bert.block_count"),
        num_heads=fields.integer("bert.attention.head_count"),
        num_positions=positions[0],
        num_types=types[0],
        norm_eps=fields.number("bert.attention.layer_norm_epsilon"),
        head="roberta" if scores else None,
    )


def gguf_names(config: BertConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    whole = {
        "embeddings.word_embeddings": "token_embd",
        "embeddings.position_embeddings": "position_embd",
        "embeddings.token_type_embeddings": "token_types",
        "embeddings.LayerNorm": "token_embd_norm",
        "classifier.dense": "cls",
        "classifier.out_proj": "cls.output",
    }
    parts = {
        "attention.self.query": "attn_q",
        "attention.self.key": "attn_k",
        "attention.self.value": "attn_v",
        "attention.output.dense": "attn_output",
        "attention.output.LayerNorm": "attn_output_norm",
        "intermediate.dense": "ffn_up",
        "output.dense": "ffn_down",
        "output.LayerNorm": "layer_output_norm",
    }
    for index in range(config.num_layers):
        whole |= {f"encoder.layer.{index}.{ours}": f"blk.{index}.{theirs}" for ours, theirs in parts.items()}
    return {
        f"{ours}.{kind}": GgufName(f"{theirs}.{kind}") for ours, theirs in whole.items() for kind in ("weight", "bias")
    }
