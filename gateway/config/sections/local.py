"""The special part of `providers.local`: the engine in this process and the models that it runs."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from adapters.nearest_name import did_you_mean_or_all
from adapters.text.reasoning import REASONING_FORMATS
from adapters.text.tool_calls import TOOL_FORMATS
from gateway.config.sections.section import (
    FrozenMap,
    LocalPath,
    Positive,
    Section,
    Size,
    Text,
    Unsupported,
    absolute_path,
    empty_map,
    folder_of,
)
from providers.local.settings import NO_FORMAT

__all__ = ["KvCache", "LocalModel", "LocalProvider", "ReasoningFormat", "Scheduler", "Speculative", "ToolFormat"]

_PATH_STARTS = ("./", "../", "/", "~")


def _absolute_source(value: str, info: ValidationInfo) -> str:
    """A path begins or ends as one, or leads to a folder that is there, such as `models/tiny`."""
    folder = folder_of(info)
    named = value.startswith(_PATH_STARTS) or value.endswith(".gguf") or ("/" in value and (folder / value).is_dir())
    return absolute_path(value, folder) if named and ":" not in value else value


def _one_of(known: Collection[str], value: str) -> str:
    if value != NO_FORMAT and value not in known:
        raise ValueError(f"unknown format '{value}'{did_you_mean_or_all(value, [NO_FORMAT, *known])}")
    return value


Source = Annotated[Text, AfterValidator(_absolute_source)]
"""Where a model comes from; a path is made absolute."""
IdleTime = Annotated[float, Field(gt=0, le=366 * 24 * 3600)] | Literal["never"]
"""Seconds without a request."""
ReasoningFormat = Annotated[Text, AfterValidator(partial(_one_of, REASONING_FORMATS))]
ToolFormat = Annotated[Text, AfterValidator(partial(_one_of, TOOL_FORMATS))]


class Speculative(Section):
    kind: Literal["ngram", "draft", "none"] = Field(
        default="ngram",
        description="How tokens are guessed: ngram looks up what followed the same words before, draft asks a smaller "
        "model, none guesses none.",
    )
    tokens: Annotated[int, Field(ge=1, le=64)] = Field(default=4, description="Tokens guessed at a time.")
    model: Source | None = Field(
        default=None, description="The smaller model, written as a source; it must have the same vocabulary."
    )

    @model_validator(mode="after")
    def _model_of_draft(self) -> "Speculative":
        if (self.kind == "draft") != (self.model is not None):
            raise ValueError("'model' belongs to kind draft, and draft needs it")
        return self


class LocalModel(Section):
    source: Source | None = Field(
        default=None,
        description="A name of the built-in list, hf:org/name, https://host/file.gguf, pypi:package, or a path to a "
        ".gguf file or a safetensors folder; default: the model's name.",
    )
    mmproj: Source | None = Field(
        default=None, description="The GGUF of the tower that reads images, as source names one, beside a GGUF model."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(default="auto", description="Type of the numbers.")
    weights: Literal["auto", "float32", "bfloat16", "float16", "int8", "int4"] = Field(
        default="auto", description="How matrices are held: as the file has them, or rounded when they are loaded."
    )
    context: Positive | None = Field(default=None, description="Longest context in tokens; default: the model's own.")
    adapters: FrozenMap[LocalPath] = Field(default_factory=empty_map, description="LoRA adapters by name.")
    speculative: Speculative | None = Field(
        default=None,
        description="Speculative decoding; default: ngram where it changes no answer, on the CPU's kernels.",
    )
    chat_template: LocalPath | None = Field(default=None, description="Jinja file in place of the model's template.")
    reasoning_format: ReasoningFormat | None = Field(
        default=None, description="How the model marks its reasoning in text."
    )
    tool_format: ToolFormat | None = Field(default=None, description="How the model marks tool calls in text.")
    load: Literal["start", "on_demand"] = Field(default="start", description="When the model is loaded.")
    idle_unload_s: IdleTime | None = Field(
        default=None, description="When it leaves memory; default: as the provider says."
    )


_LEAST_MEMORY = 4096
"""Bytes; less holds the keys and values of a few words at most, in any model."""


class KvCache(Section):
    memory: Size = Field(
        default="auto",
        description='Memory for keys and values: "2GiB", or auto (GPU: 90% of what is free; CPU: 1 GiB).',
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16", "fp8", "int8"] = Field(
        default="auto", description="Type of them: auto is the model's; fp8 and int8 have a scale a head and token."
    )
    block_size: Positive = Field(default=16, description="Tokens a block.")
    prefix_cache: bool = Field(default=True, description="Reuse what requests have in common at their start.")

    @field_validator("memory")
    @classmethod
    def _holds_tokens(cls, value: int | Literal["auto"]) -> int | Literal["auto"]:
        if value != "auto" and value < _LEAST_MEMORY:
            raise ValueError('expected at least 4KiB, such as "2GiB"; a bare number is in bytes')
        return value


class Scheduler(Section):
    max_batch_tokens: Positive | None = Field(
        default=None, description="Tokens in one step; default: the engine's choice for the device."
    )
    max_sequences: Positive = Field(default=256, description="Answers being written at the same time, a model.")
    queue: Positive = Field(default=1024, description="Requests that may wait, a model; more are refused with 429.")


class LocalProvider(Section):
    """Models that run in this process."""

    type: Literal["local"] = Field(default="local", description="The engine in this process.")
    enabled: bool | Literal["auto"] = Field(default=True, description="false: off.")
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: the GPU if there is one.")
    threads: Positive | Literal["auto"] = Field(default="auto", description="CPU threads.")
    tensor_parallel: Positive | Literal["auto"] = Field(
        default=1, description="GPUs that share one model; auto: as many as share it evenly."
    )
    deterministic: bool = Field(default=False, description="On a GPU, the same answer in any batch; slower.")
    tf32: bool = Field(
        default=False, description="On a GPU, multiply float32 matrices with mantissas of 10 bits: faster, less exact."
    )
    model: Text | None = Field(default=None, description="Short for `models` with this one model.")
    models: FrozenMap[LocalModel] = Field(default_factory=empty_map, description="The models by name.")
    kv_cache: KvCache = Field(default_factory=KvCache, description="Memory of past tokens.")
    scheduler: Scheduler = Field(default_factory=Scheduler, description="Limits of the engine.")
    idle_unload_s: IdleTime = Field(
        default="never",
        description="Seconds without a request after which a model leaves memory; the next request loads it again.",
    )
    max_loaded: Positive | None = Field(
        default=None,
        description="Models in memory at the same time: one more takes the place of the one that was asked for longest "
        "ago, once that has no request; default: all.",
    )
    params: FrozenMap[object] = Field(default_factory=empty_map, description="Fields added to every request.")
    unsupported_params: Unsupported | None = Field(
        default=None, description="What happens to a parameter that the engine does not know; default: server's."
    )

    @model_validator(mode="after")
    def _has_room_at_start(self) -> "LocalProvider":
        at_start = [name for name, model in self.models.items() if model.load == "start"]
        if self.max_loaded is not None and len(at_start) > self.max_loaded:
            raise ValueError(
                f"{len(at_start)} models are loaded at start, and 'max_loaded' lets {self.max_loaded} be in memory: "
                "give the others 'load: on_demand'"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _one_model(cls, data: object) -> object:
        """`model: x` becomes `models: {x: {}}`, so that `models` alone says what is there."""
        if not isinstance(data, Mapping):
            return data
        if "model" in data and "models" in data:
            raise ValueError("'model' and 'models' are both given, expected one of them")
        model = data.get("model")
        return {**data, "model": None, "models": {model: {}}} if isinstance(model, str) and model else data
