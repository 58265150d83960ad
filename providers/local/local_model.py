"""One model of this machine, ready to answer: its engine, tokenizer, chat template and what its files recommend.

The only place that brings a model's text side and its tensors together; the rest of the provider sees this object.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from adapters.canonical.model_memory import ModelMemory
from local_engine.config import EngineConfig
from local_engine.errors import InvalidInput, ModelLoadError
from local_engine.generation import Generator
from local_engine.sampling import SamplingDefaults
from providers.local.chat_template import ChatTemplate, load_chat_template
from providers.local.grammar import Grammars
from providers.local.image_input import ImageProcessor
from providers.local.infill import Infill, infill
from providers.local.load_progress import RECORDING, LoadProgress, WeightsRead
from providers.local.model_source import BUILTIN_MODELS, cache_folder, fetch
from providers.local.settings import LocalModelSettings, LocalSettings
from providers.local.text_formats import TextFormats, text_formats
from providers.local.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from local_engine.loading.load import ModelInfo

__all__ = ["LocalModel", "engine_config", "load_local_model"]

_logger = logging.getLogger(__name__)

# Of a GPU's free memory, for the KV pools of all models.
_GPU_SHARE = 0.9
# Tokens of a step on a GPU where run.yaml does not say: enough to multiply at full rate, and 50 ms of an 8B model on an
# H200 at its predicted rate, by which a prompt delays the answers beside it.
_GPU_BATCH_TOKENS = 2048
# Tokens looked up at a time at most, where run.yaml does not say: what repeats a text may do so for long.
_LOOKED_UP_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """`stop_token_ids`: every token that ends an answer. `template` None: the model takes plain prompts only, or
    chats that bring a template. `infill` None: it cannot fill in between two texts. `images` None: it reads none.
    `tells_guesses`: usage counts the tokens that were guessed, as run.yaml asks for them. `memory`: its
    weights as they are stored and the pool of keys and values, on a GPU what was taken of it."""

    name: str
    engine: Generator
    tokenizer: Tokenizer
    template: ChatTemplate | None
    stop_token_ids: frozenset[int]
    defaults: SamplingDefaults
    formats: TextFormats = field(default_factory=TextFormats)
    infill: Infill | None = None
    images: ImageProcessor | None = None
    tells_guesses: bool = False
    memory: ModelMemory = field(default_factory=ModelMemory)
    grammars: Grammars = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        grammars = Grammars(self.tokenizer, self.engine.vocab_size, self.stop_token_ids)
        object.__setattr__(self, "grammars", grammars)


def load_local_model(
    name: str, settings: LocalModelSettings, shared: LocalSettings, progress: LoadProgress
) -> LocalModel:
    """Fetches the files if need be, reads them and starts the engine. Blocks: run it in a thread.

    Raises FetchError, TokenizerError, InvalidRequest (a template that is none) or the engine's ModelLoadError; each
    message is one line that names the file and the reason.
    """
    source = settings.source or name
    path = fetch(source, progress=progress)
    tokenizer = load_tokenizer(path)
    template = _template(path, settings, tokenizer)
    with _named_as_in_run_yaml():
        engine, info, images, memory = _start_engine(path, settings, shared, progress, tokenizer=tokenizer)
    return LocalModel(
        name=name,
        engine=engine,
        tokenizer=tokenizer,
        template=template,
        stop_token_ids=frozenset(info.stop_token_ids) | tokenizer.eos_ids,
        defaults=_recommended(source) if info.defaults == SamplingDefaults() else info.defaults,
        formats=text_formats(template, tokenizer, settings),
        infill=infill(tokenizer),
        images=images,
        tells_guesses=settings.speculative is not None,
        memory=memory,
    )


_SETTINGS = {
    "kv_bytes": "kv_cache.memory",
    "kv_dtype": "kv_cache.dtype",
    "block_size": "kv_cache.block_size",
    "max_batch_tokens": "scheduler.max_batch_tokens",
    "max_sequences": "scheduler.max_sequences",
    "queue": "scheduler.queue",
    "max_context": "context",
    "draft_tokens": "speculative.tokens",
}
"""What the engine calls a setting, and run.yaml."""


@contextmanager
def _named_as_in_run_yaml() -> Iterator[None]:
    """A setting that the engine cannot work with is named as the operator wrote it."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(_SETTINGS.get(error.param, error.param), error.reason) from error


def _recommended(source: str) -> SamplingDefaults:
    """What the built-in list says about a model whose files say nothing."""
    builtin = BUILTIN_MODELS.get(source)
    return SamplingDefaults() if builtin is None else builtin.sampling


def _template(path: Path, settings: LocalModelSettings, tokenizer: Tokenizer) -> ChatTemplate | None:
    if settings.chat_template is not None:
        source = Path(settings.chat_template).read_text(encoding="utf-8")
        return ChatTemplate(source, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token)
    return load_chat_template(path, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token)


def _start_engine(
    path: Path, settings: LocalModelSettings, shared: LocalSettings, progress: LoadProgress, *, tokenizer: Tokenizer
) -> "tuple[Generator, ModelInfo, ImageProcessor | None, ModelMemory]":
    """The tensor side; torch is imported here and not before."""
    from local_engine.async_engine import AsyncEngine
    from local_engine.loading.load import load_model
    from local_engine.memory import gpu_bytes
    from local_engine.parallel.load import load_parallel

    config = engine_config(settings, shared)
    before = gpu_bytes(config)
    mmproj = None if settings.mmproj is None else fetch(settings.mmproj, progress=progress)
    load = load_model if config.tensor_parallel == 1 else load_parallel
    weights, guessing_weights = WeightsRead(progress), WeightsRead(progress)
    loaded = load(
        path,
        config,
        mmproj=mmproj,
        progress=weights,
        recording=lambda done, total: progress(RECORDING, done, total),
    )
    _logger.info("loaded %s on %s", path.name, config.device)
    adapters = {adapter: Path(folder) for adapter, folder in settings.adapters.items()}
    draft = None
    if settings.speculative is not None and settings.speculative.model is not None:
        draft_path = fetch(settings.speculative.model, progress=progress)
        _check_same_tokens(path, draft_path)
        # A model small enough to guess is small enough for one device.
        alone = replace(config, tensor_parallel=1)
        draft = load_model(draft_path, alone, progress=guessing_weights)
        _logger.info("loaded %s to guess for %s", draft_path.name, path.name)
    if settings.speculative is None and loaded.step_rows is not None and loaded.info.config.recurrent is None:
        config = replace(config, draft_tokens=_LOOKED_UP_TOKENS)
    images = _image_processor(mmproj or path, loaded.info, tokenizer)
    engine = AsyncEngine(loaded, config, adapters=adapters, draft=draft)
    if config.on_gpu:
        taken = gpu_bytes(config) - before
        return engine, loaded.info, images, ModelMemory(size=taken, vram=taken)
    pools = config.kv_bytes + (0 if draft is None else config.draft_kv_bytes)
    return engine, loaded.info, images, ModelMemory(size=weights.num_bytes + guessing_weights.num_bytes + pools)


def _image_processor(path: Path, info: "ModelInfo", tokenizer: Tokenizer) -> ImageProcessor | None:
    if info.config.vision is None:
        return None
    from providers.local.image_processor import load_image_processor

    return load_image_processor(path, info.config.vision, lambda token_id: tokenizer.token_bytes(token_id).decode())


def _check_same_tokens(path: Path, draft: Path) -> None:
    """Raises ModelLoadError where the ids of the two models stand for different tokens."""
    own, other = load_tokenizer(path), load_tokenizer(draft)
    same = own.vocab_size == other.vocab_size
    if not same or any(own.token_bytes(number) != other.token_bytes(number) for number in range(own.vocab_size)):
        raise ModelLoadError(draft, f"cannot guess for {path.name}: its tokens are not the same")


def engine_config(settings: LocalModelSettings, shared: LocalSettings) -> EngineConfig:
    """What run.yaml says about an engine. Imports torch, for the devices that are there."""
    from local_engine.device import pick_device

    kv_cache, scheduler, guessing = shared.kv_cache, shared.scheduler, settings.speculative
    base = EngineConfig(device=pick_device(shared.device))
    return EngineConfig(
        device=base.device,
        dtype=settings.dtype,
        weights=settings.weights,
        threads=None if shared.threads == "auto" else shared.threads,
        block_size=kv_cache.block_size,
        kv_bytes=base.kv_bytes if kv_cache.memory == "auto" else kv_cache.memory,
        kv_share=_GPU_SHARE / shared.most_loaded if kv_cache.memory == "auto" and base.on_gpu else None,
        kv_dtype=kv_cache.dtype,
        max_batch_tokens=scheduler.max_batch_tokens or (_GPU_BATCH_TOKENS if base.on_gpu else base.max_batch_tokens),
        max_sequences=scheduler.max_sequences,
        queue=scheduler.queue,
        max_context=settings.context,
        prefix_cache=kv_cache.prefix_cache,
        cache_folder=str(cache_folder()),
        deterministic=shared.deterministic,
        tf32=shared.tf32,
        tensor_parallel=shared.tensor_parallel,
        draft_tokens=0 if guessing is None or guessing.kind == "none" else guessing.tokens,
    )
