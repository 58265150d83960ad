"""Any model of this machine: its files say whether it generates text, gives embeddings or scores pairs."""

from dataclasses import replace
from pathlib import Path

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.model_memory import ModelMemory
from providers.local.load_progress import LoadProgress, WeightsRead
from providers.local.local_encoder import LocalEncoder
from providers.local.local_model import LocalModel, engine_config, load_local_model
from providers.local.model_source import fetch
from providers.local.settings import LocalModelSettings, LocalSettings
from providers.local.tokenizer import load_tokenizer

__all__ = ["open_model"]

_BATCH_TOKENS = 1024
"""No stream waits for the next token here, so a batch may be larger than a step of a model that generates."""


def open_model(
    name: str, settings: LocalModelSettings, shared: LocalSettings, progress: LoadProgress
) -> LocalModel | LocalEncoder:
    """Fetches the files if need be, reads them and starts the engine. Blocks: run it in a thread.

    Raises FetchError, TokenizerError, InvalidRequest (a template that is none) or the engine's ModelLoadError; each
    message is one line that names the file and the reason.
    """
    from local_engine.loading.encoder import model_kind  # brings torch

    path = fetch(settings.source or name, progress=progress)
    if model_kind(path) == "generation":
        return load_local_model(name, settings, shared, progress)
    return _load_encoder(name, path, settings, shared, progress=progress)


def _load_encoder(
    name: str, path: Path, settings: LocalModelSettings, shared: LocalSettings, *, progress: LoadProgress
) -> LocalEncoder:
    from local_engine.encoder_engine import EncoderEngine
    from local_engine.loading.encoder import load_encoder

    if settings.adapters:
        raise InvalidRequest(f"models.{name}.adapters: only models that generate take adapters")
    if settings.mmproj is not None:
        raise InvalidRequest(f"models.{name}.mmproj: only models that generate read images")
    if settings.weights in ("int8", "int4"):
        raise InvalidRequest(
            f"models.{name}.weights: {settings.weights} is for models that generate; say float32 or bfloat16"
        )
    config = engine_config(settings, shared)
    if config.draft_tokens:
        raise InvalidRequest(f"models.{name}.speculative: only models that generate guess tokens")
    if shared.scheduler.max_batch_tokens is None:
        config = replace(config, max_batch_tokens=_BATCH_TOKENS)
    if settings.dtype == settings.weights == "auto":
        config = replace(config, dtype="float32")  # what vectors are compared by is worth more than time, on a GPU too
    tokenizer = load_tokenizer(path)
    weights = WeightsRead(progress)
    model = load_encoder(path, config, progress=weights)
    size = weights.num_bytes
    return LocalEncoder(
        name=name,
        engine=EncoderEngine(model, config),
        tokenizer=tokenizer,
        prompt=_default_prompt(path),
        memory=ModelMemory(size=size, vram=size if config.on_gpu else 0),
    )


def _default_prompt(path: Path) -> str:
    """What sentence-transformers puts before every text that is embedded, where the folder names something."""
    from local_engine.loading.fields import FieldReader
    from local_engine.loading.safetensors import read_json

    file = path / "config_sentence_transformers.json"
    if not file.is_file():
        return ""
    fields = FieldReader(file, read_json(file))
    name, prompts = fields.text("default_prompt_name", ""), fields.table("prompts")
    return prompts.text(name) if name and prompts is not None else ""
