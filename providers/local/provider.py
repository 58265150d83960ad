"""The local provider: models that run in this process, behind the same protocol as any remote API.

Owns loading (in the background, one model after another), readiness, and the way of one choice from the prompt to its
events. What n and several prompts mean is `providers.choices`' business.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import replace as with_fields
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult
from adapters.canonical.errors import InvalidRequest, ModelNotFound
from adapters.canonical.request import Request, without_fields
from adapters.canonical.rerank import RerankRequest, RerankResult
from adapters.canonical.tokens import DetokenizeRequest, TokenizeRequest, Tokens
from adapters.minted_ids import new_call_id
from local_engine.encoding import EncoderStats
from local_engine.errors import EngineError, InvalidInput, ModelLoadError, UnknownAdapter
from local_engine.generation import EngineStats
from providers.abilities import AdapterFolder, AdapterName, Measure, ModelLoad, lacks
from providers.base import Batch, Capabilities, ModelEntry, ProviderSettings, Readiness
from providers.choices import fan_out, fan_out_prompts
from providers.local import local_encoder, prompt_tokens
from providers.local.answers import answer_best, answer_one, asks_for_best
from providers.local.engine_request import gateway_error
from providers.local.load_progress import LoadProgress, shown_progress
from providers.local.loading import AnyModel, ModelLoads
from providers.local.local_encoder import LocalEncoder
from providers.local.local_model import LocalModel
from providers.local.measures import measures
from providers.local.model_description import ModelDescription, describe, undescribed
from providers.local.model_source import cache_folder
from providers.local.open_model import open_model
from providers.local.request_images import RequestImages
from providers.local.settings import LocalModelSettings, LocalSettings, read_settings

__all__ = ["LocalProvider", "ModelLoader"]

_ANY_SEED = -1
"""What clients of local servers send for no seed at all."""
_IMAGE_WORKERS = 2
"""Images that are decoded at once, which bounds the memory for it."""


def _folders(local: LocalSettings) -> tuple[str, ...]:
    """Where the files of the models lie."""
    sources = [Path(model.source).expanduser() for model in local.models.values() if model.source is not None]
    own = [str(source.parent) for source in sources if source.is_absolute()]
    return (*own, str(cache_folder()), str(Path.home()))


ModelLoader = Callable[[str, LocalModelSettings, LocalSettings, LoadProgress], AnyModel]


class LocalProvider:
    """Built by the registry for `type: local`. `load` makes a model ready; it blocks and runs in a thread.
    `new_call_id` gives each tool call an id of its own.

    Raises ValueError for settings that cannot work.
    """

    def __init__(
        self,
        settings: ProviderSettings,
        *,
        load: ModelLoader = open_model,
        new_call_id: Callable[[], str] = new_call_id,
    ) -> None:
        self._name = settings.name
        self._limits = settings.limits
        local = read_settings(settings)
        self._models = local.models
        refused = frozenset() if local.request_templates else frozenset(("template.chat_template",))
        self._undescribed = undescribed(refused)
        self._descriptions: dict[str, ModelDescription] = {}
        """Of the models that were loaded at least once."""
        self._adapters = {name: dict(model.adapters) for name, model in local.models.items()}
        """The folder of each adapter that a request may name: those of run.yaml, and those that were loaded since."""

        def load_shown(name: str) -> AnyModel:
            with shown_progress(name) as progress:
                model = load(name, replace(local.models[name], adapters=dict(self._adapters[name])), local, progress)
            self._descriptions[name] = describe(model, refused)
            return model

        self._loads = ModelLoads(
            load_shown,
            wait_s=settings.limits.first_token_s,
            idle_s={name: local.idle_unload_s_of(name) for name in local.models},
            most=local.most_loaded,
            folders=_folders(local),
        )
        self._fetcher = settings.fetcher
        self._image_workers = ThreadPoolExecutor(_IMAGE_WORKERS, thread_name_prefix="images")
        self._created = int(time.time())
        self._new_call_id = new_call_id

    @property
    def name(self) -> str:
        return self._name

    async def start(self) -> None:
        for name, model in self._models.items():
            if model.load == "start":
                self._loads.begin(name)

    def capabilities(self, model: str) -> Capabilities:
        """What the model's files rule out is known only once they are read; until then everything is declared."""
        return self._described(model).capabilities

    def readiness(self, model: str) -> Readiness:
        self._check_known(model)
        return self._loads.readiness(model)

    async def models(self) -> Sequence[ModelEntry]:
        return [
            with_fields(self._described(name).entry, id=entry, created=self._created, owned_by=self._name)
            for name, adapters in self._adapters.items()
            for entry in (name, *(f"{name}:{adapter}" for adapter in adapters))
        ]

    async def load_model(self, asked: ModelLoad) -> None:
        """See `providers.abilities.ModelHost`."""
        async with self._using(asked.model, asked.keep_alive_s):
            pass

    async def unload_model(self, model: str) -> None:
        """See `providers.abilities.ModelHost`."""
        self._check_known(model)
        await self._loads.unload(model)

    async def load_adapter(self, adapter: AdapterFolder) -> None:
        if f"{adapter.model}:{adapter.name}" in self._models:
            raise InvalidRequest.at("adapter", f"'{adapter.model}:{adapter.name}' is a model already")
        async with self._generator(adapter.model) as model:
            try:
                await asyncio.to_thread(model.engine.load_adapter, adapter.name, Path(adapter.folder))
            except ModelLoadError as error:
                raise InvalidRequest.at("adapter", str(error)) from error
            except InvalidInput as error:
                raise InvalidRequest(str(error), param=error.param) from error
            self._adapters[adapter.model][adapter.name] = adapter.folder

    async def unload_adapter(self, adapter: AdapterName) -> None:
        async with self._generator(adapter.model) as model:
            try:
                model.engine.unload_adapter(adapter.name)
            except UnknownAdapter as error:
                named = f"{adapter.model}:{adapter.name}"
                raise ModelNotFound(f"the model '{named}' does not exist", param="model") from error
            self._adapters[adapter.model].pop(adapter.name, None)

    def engine_stats(self, model: str) -> EngineStats | None:
        """The engine's present state; None while the model is not loaded, and for one that does not generate."""
        loaded = self._loads.loaded(model)
        return loaded.engine.stats() if isinstance(loaded, LocalModel) else None

    def encoder_stats(self, model: str) -> EncoderStats | None:
        """The same of an embedding model or a cross-encoder."""
        loaded = self._loads.loaded(model)
        return loaded.engine.stats() if isinstance(loaded, LocalEncoder) else None

    def measures(self) -> Sequence[Measure]:
        """The numbers of every engine that is loaded (`providers.abilities.Measured`)."""
        stats = ((name, self.engine_stats(name) or self.encoder_stats(name)) for name in self._models)
        return [measure for name, found in stats if found is not None for measure in measures(name, found)]

    def stream(self, request: Request) -> AsyncGenerator[Batch, None]:
        if request.sampling.seed == _ANY_SEED:
            request = without_fields(request, ("seed",))
        answer = partial(self._answer, self._images(request))
        if asks_for_best(request):
            return fan_out_prompts(answer, request)
        return fan_out(answer, replace(request, best_of=None))

    async def count_tokens(self, request: Request) -> Sequence[int]:
        """As the model's own template and tokenizer count (`providers.abilities.TokenCounter`)."""
        async with self._using(request.model) as model:
            return (len(await prompt_tokens.prompt_ids(model, request, self._images(request))),)

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        """See `providers.abilities.Tokenizer`."""
        async with self._using(request.model) as model:
            return await prompt_tokens.tokenize(model, request, self._images(request.request))

    async def detokenize(self, request: DetokenizeRequest) -> str:
        """See `providers.abilities.Tokenizer`."""
        async with self._using(request.model) as model:
            return prompt_tokens.detokenize(model, request)

    def embedding_fields(self, model: str) -> frozenset[str]:
        return local_encoder.EMBEDDING_FIELDS

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """See `providers.abilities.Embedder`."""
        async with self._encoder(request.model, "gives no embeddings", request.keep_alive_s) as encoder:
            return await local_encoder.embed(encoder, request)

    def rerank_fields(self, model: str) -> frozenset[str]:
        return local_encoder.RERANK_FIELDS

    async def rerank(self, request: RerankRequest) -> RerankResult:
        """See `providers.abilities.Reranker`."""
        async with self._encoder(request.model, "does not rank") as encoder:
            return await local_encoder.rerank(encoder, request)

    async def aclose(self) -> None:
        await self._loads.aclose()
        self._image_workers.shutdown(wait=False)

    def _images(self, request: Request) -> RequestImages:
        return RequestImages(request, self._fetcher, self._image_workers)

    def _described(self, model: str) -> ModelDescription:
        return self._descriptions.get(model, self._undescribed)

    def _using(self, model: str, keep_alive_s: float | None = None) -> AbstractAsyncContextManager[AnyModel]:
        """Raises ModelNotFound, and what `ModelLoads.using` does."""
        self._check_known(model)
        return self._loads.using(model, keep_alive_s)

    @asynccontextmanager
    async def _generator(self, model: str, keep_alive_s: float | None = None) -> AsyncGenerator[LocalModel, None]:
        """Raises UnsupportedParameter for one that does not generate."""
        async with self._using(model, keep_alive_s) as found:
            if not isinstance(found, LocalModel):
                raise lacks(model, "does not generate text")
            yield found

    @asynccontextmanager
    async def _encoder(
        self, model: str, otherwise: str, keep_alive_s: float | None = None
    ) -> AsyncGenerator[LocalEncoder, None]:
        """Raises UnsupportedParameter for one that generates."""
        async with self._using(model, keep_alive_s) as found:
            if not isinstance(found, LocalEncoder):
                raise lacks(model, f"generates text and {otherwise}")
            yield found

    def _check_known(self, model: str) -> None:
        if model not in self._models:
            raise ModelNotFound(f"the model '{model}' does not exist", param="model")

    async def _answer(self, images: RequestImages, request: Request) -> AsyncGenerator[Batch, None]:
        """The answer to a request for one choice, or for the best choices of one prompt."""
        asked_ns = time.monotonic_ns()
        async with self._generator(request.model, request.keep_alive_s) as model:
            if asks_for_best(request):
                answer = answer_best(model, request, images, self._new_call_id)
            else:
                answer = answer_one(model, request, images, self._new_call_id, asked_ns=asked_ns)
            try:
                async with aclosing(answer) as batches:
                    async for batch in batches:
                        yield batch
            except EngineError as error:
                raise gateway_error(error, request) from error
