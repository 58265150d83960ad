"""A tiny random oracle of every architecture that reads images, by the name that config.json calls it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers
from gguf import GGMLQuantizationType as FileType
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from local_engine.generation import GenerationRequest, ImageInput
from local_engine.sampling import SamplingParams
from tests.local_engine.models.tiny_mmproj import write_pair
from tests.local_engine.tiny_models import add_named_tokens, lengthen

__all__ = [
    "IMAGE",
    "NAMES",
    "SIZE",
    "TINY_IMAGE_ORACLES",
    "TOKENS",
    "ImageOracle",
    "ImagePrompt",
    "image_oracle",
    "pixels_of",
]

SIZE, TOKENS, IMAGE, START, END = 16, 4, 100, 101, 102
_QWENS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
NAMES = {
    "gemma3": {IMAGE: "<image_soft_token>", START: "<start_of_image>", END: "<end_of_image>"},
    "idefics3": {IMAGE: "<image>"},
    "smolvlm": {IMAGE: "<image>"},
    **{kind: {IMAGE: "<|image_pad|>"} for kind in _QWENS},
}
"""What vocabularies call the tokens, by transformers' model_type."""

_TEXT = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 96,
    "eos_token_id": 7,
    "bos_token_id": 1,
}
_TOWER = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": SIZE,
    "patch_size": 4,
}

_QWEN_TOWER = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "depth": 2,
    "num_heads": 2,
    "patch_size": 4,
    "spatial_merge_size": 2,
}
_QWEN_TOKENS = {
    "image_token_id": IMAGE,
    "video_token_id": 103,
    "vision_start_token_id": START,
    "vision_end_token_id": END,
}


def _gemma3(**overrides: Any) -> Any:
    text = {
        **_TEXT,
        "query_pre_attn_scalar": 32,
        "num_hidden_layers": 7,
        "sliding_window": 6,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    }
    return transformers.Gemma3Config(
        text_config=text,
        vision_config=_TOWER,
        mm_tokens_per_image=TOKENS,
        image_token_index=IMAGE,
        boi_token_index=START,
        eoi_token_index=END,
        **overrides,
    )


def _idefics3(config: Any) -> Callable[..., Any]:
    def build(**overrides: Any) -> Any:
        text = {**_TEXT, "model_type": "llama", "pad_token_id": 0}
        values = {"scale_factor": 2, "image_token_id": IMAGE, "pad_token_id": 0, **overrides}
        return config(text_config=text, vision_config=_TOWER, **values)

    return build


def _qwen3_vl(config: Any, **experts: Any) -> Callable[..., Any]:
    def build(**overrides: Any) -> Any:
        rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [6, 5, 5], "mrope_interleaved": True}
        text = {**_TEXT, "num_hidden_layers": 3, "rope_parameters": rope, **experts}
        tower = {
            **_QWEN_TOWER,
            "depth": 4,
            "out_hidden_size": 32,
            "num_position_embeddings": 25,
            "deepstack_visual_indexes": [0, 2],
        }
        return config(text_config=text, vision_config=tower, **{**_QWEN_TOKENS, **overrides})

    return build


def _qwen3_5(config: Any, **experts: Any) -> Callable[..., Any]:
    def build(of_text: Mapping[str, Any] | None = None, **overrides: Any) -> Any:
        text = {
            **_TEXT,
            "num_hidden_layers": 4,
            "layer_types": ["linear_attention", "full_attention"] * 2,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 4,
            "linear_value_head_dim": 6,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.5,
                "mrope_section": [3, 3, 2],
                "mrope_interleaved": True,
            },
            **experts,
            **(of_text or {}),
        }
        tower = {**_QWEN_TOWER, "out_hidden_size": 32, "num_position_embeddings": 25}
        return config(text_config=text, vision_config=tower, **{**_QWEN_TOKENS, **overrides})

    return build


def _qwen2_vl(config: Any, **tower: Any) -> Callable[..., Any]:
    def build(**overrides: Any) -> Any:
        rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [6, 5, 5]}
        text = {**_TEXT, "hidden_size": 128, "rope_parameters": rope}
        del text["head_dim"]
        return config(text_config=text, vision_config={**_QWEN_TOWER, **tower}, **{**_QWEN_TOKENS, **overrides})

    return build


TINY_IMAGE_ORACLES: Mapping[str, Callable[..., Any]] = {
    "Gemma3ForConditionalGeneration": _gemma3,
    "Idefics3ForConditionalGeneration": _idefics3(transformers.Idefics3Config),
    "SmolVLMForConditionalGeneration": _idefics3(transformers.SmolVLMConfig),
    "Qwen2VLForConditionalGeneration": _qwen2_vl(
        transformers.Qwen2VLConfig, embed_dim=32, hidden_size=128, mlp_ratio=2
    ),
    "Qwen2_5_VLForConditionalGeneration": _qwen2_vl(
        transformers.Qwen2_5_VLConfig, out_hidden_size=128, window_size=16, fullatt_block_indexes=[1]
    ),
    "Qwen3VLForConditionalGeneration": _qwen3_vl(transformers.Qwen3VLConfig),
    "Qwen3_5ForConditionalGeneration": _qwen3_5(transformers.Qwen3_5Config),
    "Qwen3_5MoeForConditionalGeneration": _qwen3_5(
        transformers.Qwen3_5MoeConfig,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
        shared_expert_intermediate_size=64,
    ),
    "Qwen3VLMoeForConditionalGeneration": _qwen3_vl(
        transformers.Qwen3VLMoeConfig, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64
    ),
}


def pixels_of(seed: int, height: int = SIZE, width: int = SIZE) -> npt.NDArray[np.float32]:
    """An image [3, height, width] of noise."""
    return np.random.default_rng(seed).standard_normal((3, height, width), dtype=np.float32)


def _num_tokens(image: npt.NDArray[np.float32]) -> int:
    """Each stands for so many pixels, whatever the model."""
    _, height, width = image.shape
    count: int = height * width * TOKENS // SIZE**2
    return count


@dataclass(frozen=True)
class ImagePrompt:
    """Tokens in which each item that is an array stands for an image."""

    items: Sequence[int | npt.NDArray[np.float32]]

    @property
    def images(self) -> list[npt.NDArray[np.float32]]:
        return [item for item in self.items if not isinstance(item, int)]

    @property
    def tokens(self) -> list[int]:
        return [
            token for item in self.items for token in ([item] if isinstance(item, int) else [IMAGE] * _num_tokens(item))
        ]

    def request(self, sampling: SamplingParams) -> GenerationRequest:
        images, place = [], 0
        for item in self.items:
            if isinstance(item, int):
                place += 1
            else:
                images.append(ImageInput(place, item, sha256(item.tobytes()).digest()))
                place += _num_tokens(item)
        return GenerationRequest("r", tuple(self.tokens), sampling, images=tuple(images))


@dataclass(frozen=True)
class ImageOracle:
    """transformers' own model, in float32, whose weights stay as they are."""

    model: Any
    _answers: dict[tuple[tuple[int, ...], bytes], list[int]] = field(default_factory=dict, compare=False)

    def logits(self, prompt: ImagePrompt, more: Sequence[int] = ()) -> torch.Tensor:
        """[T, V] for every position of the prompt and what follows it."""
        tokens = torch.tensor([[*prompt.tokens, *more]])
        inputs: dict[str, Any] = {}
        if prompt.images and self.takes_any_size:
            patches = [Qwen2VLImageProcessorPil().patchify(image, 4, 2, 2) for image in prompt.images]
            inputs["pixel_values"] = torch.from_numpy(np.concatenate([rows for rows, _, _ in patches]))
            inputs["image_grid_thw"] = torch.tensor([[1, height, width] for _, height, width in patches])
            inputs["mm_token_type_ids"] = (tokens == IMAGE).int()
        elif prompt.images:
            pixels = torch.from_numpy(np.stack(prompt.images))
            inputs["pixel_values"] = pixels if self._is_gemma else pixels[None]
        if self._is_gemma:
            inputs["token_type_ids"] = (tokens == IMAGE).long()
        with torch.inference_mode():
            logits: torch.Tensor = self.model(input_ids=tokens, **inputs).logits[0]
        return logits

    def greedy(self, prompt: ImagePrompt, count: int, guess: Sequence[int] = ()) -> list[int]:
        """As `Oracle.greedy`, save for the token of images."""
        key = tuple(prompt.tokens), b"".join(image.tobytes() for image in prompt.images)
        answer = self._answers.setdefault(key, [])

        def likeliest(answer: list[int]) -> list[int]:
            logits = self.logits(prompt, answer)[len(prompt.tokens) - 1 :]
            found: list[int] = logits.index_fill(1, torch.tensor([IMAGE]), -torch.inf).argmax(-1).tolist()
            return found

        lengthen(answer, count, likeliest, guess)
        return answer[:count]

    def write(self, folder: Path) -> Path:
        self.model.save_pretrained(folder)
        return folder

    def write_pair(self, folder: Path, matrix_type: FileType = FileType.F32) -> tuple[Path, Path]:
        """As llama.cpp has it: the decoder and the tower."""
        add_vocabulary = partial(add_named_tokens, names=NAMES[self.model.config.model_type])
        return write_pair(self.model, folder, add_vocabulary, matrix_type=matrix_type)

    @property
    def takes_any_size(self) -> bool:
        return str(self.model.config.model_type).startswith("qwen")

    @property
    def _is_gemma(self) -> bool:
        return str(self.model.config.model_type) == "gemma3"


def image_oracle(name: str, seed: int = 3, **overrides: Any) -> ImageOracle:
    """A random model whose logits differ clearly from token to token, and from image to image."""
    torch.manual_seed(seed)
    config = TINY_IMAGE_ORACLES[name](**overrides)
    model = getattr(transformers, name)._from_config(config, attn_implementation="eager")
    least = -0.5 if name.startswith("Gemma") else 0.5
    for parameter, weight in model.named_parameters():
        if ("norm" in parameter or "ln_q" in parameter) and weight.ndim == 1 and not parameter.endswith("bias"):
            low = least if "layer_norm" not in parameter and "post_layernorm" not in parameter else 0.5
            torch.nn.init.uniform_(weight, low, low + 1)
        else:
            torch.nn.init.normal_(weight, std=0.3)
    return ImageOracle(model.eval())
