"""Safetensors files with packed weights, written from known numbers, and read back through the loader's sources."""

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from local_engine.config import EngineConfig
from local_engine.errors import ModelLoadError
from local_engine.loading.load import load_model
from local_engine.loading.plain_source import HfName, Packing, PlainSource
from local_engine.loading.safetensors import SafetensorsSource
from tests.local_engine.models.against_transformers import PROMPTS, logits_of
from tests.local_engine.tiny_models import Oracle, tiny_oracle, write_safetensors

__all__ = ["Parts", "answers_as_its_plain_numbers", "mxfp4", "mxfp4_number", "packed_model", "plain", "refused"]

# The parts of one packed tensor by their endings, and the numbers that they stand for.
Parts = tuple[dict[str, torch.Tensor], torch.Tensor]


def plain(
    folder: Path,
    tensors: Mapping[str, torch.Tensor],
    packing: Packing | None,
    *,
    names: Mapping[str, HfName] | None = None,
    dtype: torch.dtype = torch.float32,
) -> dict[str, torch.Tensor]:
    """What the file presents: every plain tensor by its name. Fails unless its bytes add up to those of the file."""
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    with contextlib.closing(SafetensorsSource(folder)) as file:
        source = PlainSource(file, packing=packing, names=names)
        found = {}
        for name, shape in source.shapes.items():
            found[name] = torch.full(shape, torch.nan, dtype=dtype)
            source.read_into(name, found[name])
        used = sum(map(source.num_bytes, source.shapes))
        assert used == sum(file.num_bytes(name) for name in file.shapes if packing is None or not packing.unused(name))
    return found


def refused(folder: Path, tensors: Mapping[str, torch.Tensor], packing: Packing | None, **options: Any) -> str:
    """The reason for which the file is not read."""
    with pytest.raises(ModelLoadError) as caught:
        plain(folder, tensors, packing, **options)
    assert "\n" not in str(caught.value)
    return caught.value.reason


def packed_model(folder: Path, pack: Callable[[torch.Tensor], Parts], config: dict[str, Any]) -> Oracle:
    """A tiny Llama in `folder` whose projections are packed; the oracle computes with the numbers they stand for."""
    oracle = tiny_oracle(seed=21, hidden_size=64, intermediate_size=96)
    write_safetensors(oracle, folder)
    tensors: dict[str, torch.Tensor] = {}
    for name, weight in oracle.model.state_dict().items():
        if name.endswith("_proj.weight"):
            parts, numbers = pack(weight)
            tensors |= {name.removesuffix("weight") + part: tensor.contiguous() for part, tensor in parts.items()}
            weight.copy_(numbers)
        else:
            tensors[name] = weight
    save_file(tensors, folder / "model.safetensors")
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | {"quantization_config": config}))
    return oracle


def mxfp4_number(code: int, exponent: int) -> float:
    """E2M1 (1 sign, 2 exponent, 1 mantissa bit) times a power of two, from its bits."""
    sign, power, mantissa = code >> 3, code >> 1 & 3, code & 1
    magnitude = mantissa * 0.5 if power == 0 else (1 + mantissa / 2) * 2.0 ** (power - 1)
    return float((-magnitude if sign else magnitude) * 2.0 ** (exponent - 127))


def mxfp4(stack: torch.Tensor) -> Parts:
    """[experts, out, in] in blocks of 32 along `in`, each number the nearest that there is."""
    codes = torch.tensor([mxfp4_number(code, 127) for code in range(16)])
    blocks = stack.reshape(*stack.shape[:-1], -1, 32)
    exponents = blocks.abs().amax(-1).log2().floor().int() - 2 + 127
    scaled = torch.ldexp(blocks, 127 - exponents[..., None])
    nearest = (scaled[..., None] - codes).abs().argmin(-1)
    pairs = nearest.reshape(*nearest.shape[:-1], 16, 2)
    parts = {
        "_blocks": (pairs[..., 0] | pairs[..., 1] << 4).to(torch.uint8),
        "_scales": exponents.to(torch.uint8),
    }
    return parts, torch.ldexp(codes[nearest], exponents[..., None] - 127).flatten(-2)


def answers_as_its_plain_numbers(folder: Path, oracle: Oracle) -> None:
    """Fails unless logits are the oracle's and progress ends at the whole."""
    calls: list[tuple[int, int]] = []
    loaded = load_model(folder, EngineConfig(), progress=lambda done, total: calls.append((done, total)))
    torch.testing.assert_close(logits_of(loaded, PROMPTS[0]), oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)
    done = [call[0] for call in calls]
    assert done == sorted(done)
    assert {call[1] for call in calls} == {done[-1]}
    assert done[-2] == done[-1]  # what was read is what was announced, before `finish` says so
