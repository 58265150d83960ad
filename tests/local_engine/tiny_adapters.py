"""Random LoRA adapters as peft saves them, with peft's own model as the oracle."""

import copy
import warnings
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model

from tests.local_engine.tiny_models import Oracle

__all__ = ["ALL_LINEAR", "adapted", "write_adapter"]

ALL_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def write_adapter(oracle: Oracle, folder: Path, *, seed: int = 0, **settings: Any) -> Path:
    """An adapter of rank 4 on all linear layers whose effect is as large as the model's own weights."""
    values: dict[str, Any] = {"r": 4, "lora_alpha": 8, "target_modules": ALL_LINEAR, "init_lora_weights": False}
    torch.manual_seed(seed)
    with _quiet():
        model = get_peft_model(copy.deepcopy(oracle.model), LoraConfig(**(values | settings)))
        for name, weight in model.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(weight, std=0.2)
        model.save_pretrained(folder)
    return folder


def adapted(oracle: Oracle, folder: Path) -> Oracle:
    """What peft makes of the model and an adapter."""
    with _quiet():
        return Oracle(PeftModel.from_pretrained(copy.deepcopy(oracle.model), folder).eval())


def _quiet() -> "warnings.catch_warnings[None]":
    """peft 0.21 asks transformers for a name that is deprecated there."""
    return warnings.catch_warnings(action="ignore", category=FutureWarning)
