"""Random models that read images, in folders with what transformers leaves there: tokenizer, template, processor."""

import io
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tokenizers
import torch
import transformers
from PIL import Image
from tokenizers import decoders, models, pre_tokenizers
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from tests.local_engine.models.tiny_mmproj import write_pair

__all__ = [
    "KINDS",
    "SIDE",
    "picture",
    "pixels_of",
    "plain",
    "png",
    "processor_of",
    "write_vision_model",
    "write_vision_pair",
]

SIDE = 16
_TOWER = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": SIDE,
    "patch_size": 4,
}
_TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 2048,
}
_ENDS = ["<eos>", "<bos>"]
_GEMMA = ["<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>", "<image_soft_token>"]
_IDEFICS = ["<|im_start|>", "<end_of_utterance>", "<fake_token_around_image>", "<image>", "<global-img>"] + [
    f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)
]
_SMOLVLM_TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{ line['text'] }}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
_QWEN = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
_QWEN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' or 'image' in part or 'image_url' in part %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part.type == 'video' or 'video' in part %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_QWEN_TOWER = {"depth": 2, "hidden_size": 16, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2}
_QWEN_SIZE = {"shortest_edge": 16 * SIDE, "longest_edge": 256 * SIDE}
KINDS = ("gemma3", "smolvlm", "idefics3", "qwen2_5_vl", "qwen3_vl")


def picture(width: int = 40, height: int = 24, *, seed: int = 0, mode: str = "RGB") -> Image.Image:
    """Noise, so that no two resizings of it are alike."""
    random = np.random.default_rng(seed)
    bands = {"RGB": 3, "RGBA": 4, "L": 0}[mode]
    shape = (height, width, bands) if bands else (height, width)
    return Image.fromarray(random.integers(0, 256, shape, dtype=np.uint8), mode=None)


def plain(colour: str) -> Image.Image:
    """Of one colour, so that a model tells it from another."""
    return Image.new("RGB", (40, 24), colour)


def png(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def _tokens(kind: str) -> list[str]:
    return [*_ENDS, *(_GEMMA if kind == "gemma3" else _QWEN if kind.startswith("qwen") else _IDEFICS)]


def _id(kind: str, token: str) -> int:
    return 256 + _tokens(kind).index(token)


def _template(kind: str) -> str:
    if kind == "gemma3":
        return (Path(__file__).parent / "families" / "gemma_3.jinja").read_text(encoding="utf-8")
    return _QWEN_TEMPLATE if kind.startswith("qwen") else _SMOLVLM_TEMPLATE


def _tokenizer(kind: str) -> tokenizers.Tokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(_tokens(kind))
    return tokenizer


class _QwenImages(transformers.Qwen3VLProcessor):  # type: ignore[misc]
    """Without videos, whose part of the processor needs torchvision."""

    def __init__(self, image_processor: Any = None, tokenizer: Any = None, chat_template: str | None = None) -> None:
        transformers.ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)
        self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
        self.image_token_id, self.video_token_id = map(
            tokenizer.convert_tokens_to_ids, (self.image_token, self.video_token)
        )


def processor_of(kind: str) -> Any:
    """transformers' own processor of such a model: from messages and images to token ids and pixels."""
    named = {"bos_token": "<bos>", "eos_token": "<eos>"}
    if kind == "gemma3":
        extra = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=_tokenizer(kind), extra_special_tokens=extra, **named
        )
        return transformers.Gemma3Processor(
            Gemma3ImageProcessorPil(size={"height": SIDE, "width": SIDE}),
            tokenizer,
            chat_template=_template(kind),
            image_seq_length=4,
        )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=_tokenizer(kind), **named)
    if kind.startswith("qwen"):
        images = Qwen2VLImageProcessorPil(patch_size=4, merge_size=2, size=_QWEN_SIZE)
        return _QwenImages(images, tokenizer, chat_template=_template(kind))
    processor = SmolVLMImageProcessorPil if kind == "smolvlm" else Idefics3ImageProcessorPil
    images = processor(size={"longest_edge": 3 * SIDE}, max_image_size={"longest_edge": SIDE})
    # SmolVLM's own wants one for videos too, which needs torchvision; for images they are the same.
    return transformers.Idefics3Processor(images, tokenizer, image_seq_len=4, chat_template=_template(kind))


def _config(kind: str) -> Any:
    text = {**_TEXT, "vocab_size": 256 + len(_tokens(kind)), "bos_token_id": 257, "eos_token_id": 256}
    if kind == "gemma3":
        return transformers.Gemma3Config(
            text_config={**text, "query_pre_attn_scalar": 32, "sliding_window": 64},
            vision_config={**_TOWER, "vision_use_head": False},
            mm_tokens_per_image=4,
            image_token_index=_id(kind, "<image_soft_token>"),
            boi_token_index=_id(kind, "<start_of_image>"),
            eoi_token_index=_id(kind, "<end_of_image>"),
            tie_word_embeddings=False,  # a random model with tied ones says its last token again and again
        )
    if kind.startswith("qwen"):
        return _qwen_config(kind, text)
    config = transformers.SmolVLMConfig if kind == "smolvlm" else transformers.Idefics3Config
    return config(
        text_config={**text, "model_type": "llama", "pad_token_id": 0},
        vision_config=_TOWER,
        scale_factor=2,
        image_token_id=_id(kind, "<image>"),
        pad_token_id=0,
    )


def _qwen_config(kind: str, text: dict[str, Any]) -> Any:
    ids = {
        "image_token_id": _id(kind, "<|image_pad|>"),
        "video_token_id": _id(kind, "<|video_pad|>"),
        "vision_start_token_id": _id(kind, "<|vision_start|>"),
        "vision_end_token_id": _id(kind, "<|vision_end|>"),
    }
    rope = {"rope_type": "default", "rope_theta": 1e4}
    if kind == "qwen3_vl":
        tower = {"intermediate_size": 24, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}
        return transformers.Qwen3VLConfig(
            text_config={**text, "rope_parameters": {**rope, "mrope_section": [6, 5, 5]}},
            vision_config={**_QWEN_TOWER, **tower, "out_hidden_size": 32},
            **ids,
        )
    tower = {"intermediate_size": 24, "window_size": 16, "fullatt_block_indexes": [1]}
    text = {name: value for name, value in text.items() if name != "head_dim"}
    return transformers.Qwen2_5_VLConfig(
        text_config={**text, "rope_parameters": {**rope, "mrope_section": [2, 1, 1]}},
        vision_config={**_QWEN_TOWER, **tower, "out_hidden_size": 32},
        **ids,
    )


def _model(kind: str) -> Any:
    """The same weights every time."""
    torch.manual_seed(4)
    names = {
        "gemma3": "Gemma3",
        "smolvlm": "SmolVLM",
        "idefics3": "Idefics3",
        "qwen2_5_vl": "Qwen2_5_VL",
        "qwen3_vl": "Qwen3VL",
    }
    model = getattr(transformers, f"{names[kind]}ForConditionalGeneration")(_config(kind))
    for name, weight in model.named_parameters():
        if "norm" not in name:
            torch.nn.init.normal_(weight, std=3.0 if "project" in name else 0.3)
    return model


def pixels_of(kind: str, processed: Any) -> list[Any]:
    """What the processor made of each tile, as [3, height, width]."""
    pixels = processed["pixel_values"]
    if not kind.startswith("qwen"):
        tiles = pixels.reshape(-1, *pixels.shape[-3:])
        return [tile for tile in tiles if tile.any()]  # shorter lists of tiles are filled up with zeros
    found = []
    for _, height, width in processed["image_grid_thw"].tolist():
        patches, pixels = pixels[: height * width], pixels[height * width :]
        cut = patches.reshape(height // 2, width // 2, 2, 2, 3, 2, 4, 4)[:, :, :, :, :, 0]
        found.append(cut.transpose(4, 0, 2, 5, 1, 3, 6).reshape(3, height * 4, width * 4))
    return found


def write_vision_pair(folder: Path, kind: str = "gemma3", *, told: bool = True) -> tuple[Path, Path]:
    """The same model as two files of llama.cpp's: the decoder with tokenizer and template, and the tower.

    told: how many pixels the tower takes, where it takes any size.
    """

    def add_vocabulary(writer: gguf.GGUFWriter) -> None:
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        # Gemma's files end before the token of images, and call those around one user-defined.
        special = [{"<image_soft_token>": "<pad>"}.get(token, token) for token in _tokens(kind)]
        control, user_defined = gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED
        types = [user_defined if token.endswith("_of_image>") else control for token in special]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("default")
        writer.add_token_list([*letters, *special])
        writer.add_token_types([gguf.TokenType.NORMAL] * len(letters) + types)
        writer.add_token_merges([])
        writer.add_bos_token_id(_id(kind, "<bos>"))
        writer.add_eos_token_id(_id(kind, "<eos>"))
        writer.add_add_bos_token(False)
        writer.add_chat_template(_template(kind))

    if not kind.startswith("qwen"):
        return write_pair(_model(kind), folder, add_vocabulary)
    images = processor_of(kind).image_processor
    sizes = {"image_min_pixels": images.size["shortest_edge"], "image_max_pixels": images.size["longest_edge"]}
    return write_pair(
        _model(kind),
        folder,
        add_vocabulary,
        pixels=sizes if told else {},
        image_mean=list(images.image_mean),
        image_std=list(images.image_std),
    )


def write_vision_model(folder: Path, kind: str = "gemma3") -> Path:
    _model(kind).save_pretrained(folder)
    _tokenizer(kind).save(str(folder / "tokenizer.json"))
    named = {"bos_token": "<bos>", "eos_token": "<eos>", "chat_template": _template(kind)}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    processor_of(kind).image_processor.save_pretrained(folder)
    return folder
