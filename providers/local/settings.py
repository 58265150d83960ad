"""The local provider's part of run.yaml, as the provider reads it."""

from collections.abc import Collection
from typing import Final, Literal

import msgspec
from msgspec import Struct

from adapters.text.reasoning import REASONING_FORMATS
from adapters.text.tool_calls import TOOL_FORMATS
from providers.base import ProviderSettings

__all__ = [
    "NO_FORMAT",
    "KvCacheSettings",
    "LocalModelSettings",
    "LocalSettings",
    "SchedulerSettings",
    "SpeculativeSettings",
    "read_settings",
]

NO_FORMAT: Final = "none"
"""In place of a format's name: the text is left as it is."""


class SpeculativeSettings(Struct, frozen=True, kw_only=True):
    """Guessing tokens ahead. `model`: the source of the smaller model that guesses, for kind draft alone."""

    kind: Literal["ngram", "draft", "none"] = "ngram"
    tokens: int = 4
    model: str | None = None


class LocalModelSettings(Struct, frozen=True, kw_only=True):
    """`source` None: the model's own name. `context`, `chat_template`, formats None: as the model's files say.
    `speculative` None: tokens are looked up where that changes no answer. `idle_unload_s` None: the provider's.

    `mmproj`: where the tower is that a GGUF reads images with, as `source` says it.

    `adapters` are folders of LoRA adapters by name; `base:name` is how a request asks for one.
    """

    source: str | None = None
    mmproj: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    weights: Literal["auto", "float32", "bfloat16", "float16", "int8", "int4"] = "auto"
    context: int | None = None
    adapters: dict[str, str] = {}
    speculative: SpeculativeSettings | None = None
    chat_template: str | None = None
    reasoning_format: str | None = None
    tool_format: str | None = None
    load: Literal["start", "on_demand"] = "start"
    idle_unload_s: float | Literal["never"] | None = None


class KvCacheSettings(Struct, frozen=True, kw_only=True):
    """`memory` in bytes, a model; auto: 1 GiB on the CPU, on a GPU 90% of what is free, in equal parts for the models.

    `dtype` auto: the type that the model computes in.
    """

    memory: int | Literal["auto"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16", "fp8", "int8"] = "auto"
    block_size: int = 16
    prefix_cache: bool = True


class SchedulerSettings(Struct, frozen=True, kw_only=True):
    """`max_batch_tokens` None: the engine's own choice for the device."""

    max_batch_tokens: int | None = None
    max_sequences: int = 256
    queue: int = 1024


class LocalSettings(Struct, frozen=True, kw_only=True):
    models: dict[str, LocalModelSettings]
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | Literal["auto"] = "auto"
    deterministic: bool = False
    tf32: bool = False
    tensor_parallel: int | Literal["auto"] = 1
    kv_cache: KvCacheSettings = KvCacheSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    request_templates: bool = False
    """Whether a request may bring its own chat template."""
    idle_unload_s: float | Literal["never"] = "never"
    """How long a model stays in memory without a request."""
    max_loaded: int | None = None
    """Models in memory at the same time; None: all of them."""

    @property
    def most_loaded(self) -> int:
        return min(len(self.models), self.max_loaded or len(self.models))

    def idle_unload_s_of(self, name: str) -> float | None:
        """None: it stays."""
        own = self.models[name].idle_unload_s
        found = self.idle_unload_s if own is None else own
        return None if found == "never" else found


def read_settings(settings: ProviderSettings) -> LocalSettings:
    """Raises ValueError, naming what is wrong."""
    options = {name: settings.options[name] for name in LocalSettings.__struct_fields__ if name in settings.options}
    try:
        local = msgspec.convert(options, LocalSettings)
    except msgspec.ValidationError as error:
        raise ValueError(f"providers.{settings.name}: {error}") from error
    for name, model in local.models.items():
        where = f"providers.{settings.name}.models.{name}"
        for adapter in model.adapters:
            if not adapter or ":" in adapter or "/" in adapter or f"{name}:{adapter}" in local.models:
                raise ValueError(f"{where}.adapters: '{adapter}' would not be told from a model in '{name}:{adapter}'")
        _check_format(f"{where}.reasoning_format", model.reasoning_format, REASONING_FORMATS)
        _check_format(f"{where}.tool_format", model.tool_format, TOOL_FORMATS)
    return local


def _check_format(where: str, name: str | None, known: Collection[str]) -> None:
    if name is not None and name != NO_FORMAT and name not in known:
        raise ValueError(f"{where}: no format is named '{name}', expected {', '.join(sorted(known))} or {NO_FORMAT}")
