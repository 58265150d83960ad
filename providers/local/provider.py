"""The local provider: models that run in this process, behind the same protocol as any remote API.

Owns loading (in the background, one model after another), readiness, and the way of one choice from the prompt to its
events. What n and several prompts mean is `providers.choices`' business.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import asdict
from dataclasses import replace as with_fields
from functools import lru_cache, partial
from pathlib import Path

from msgspec.structs import replace

from adapters.canonical.abilities import EMBED, GENERATE, RANK
from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult
from adapters.canonical.errors import InvalidRequest, ModelNotFound
from adapters.canonical.messages import Image, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from adapters.canonical.request import Request, without_fields
from adapters.canonical.rerank import RerankRequest, RerankResult
from adapters.canonical.tokens import DetokenizeRequest, TokenizeRequest, Tokens
from adapters.minted_ids import new_call_id
from local_engine.encoding import EncoderStats
from local_engine.errors import EngineError, InvalidInput, ModelLoadError, UnknownAdapter
from local_engine.generation import EngineStats
from providers.abilities import AdapterFolder, AdapterName, Measure, lacks
from providers.base import Batch, Capabilities, ModelEntry, ProviderSettings, Readiness
from providers.choices import fan_out, fan_out_prompts
from providers.local import local_encoder, prompt_tokens
from providers.local.answers import answer_best, answer_one, asks_for_best
from providers.local.constraint import FORMAT_KINDS
from providers.local.custom_tools import CUSTOM
from providers.local.engine_request import gateway_error
from providers.local.json_schemas import SCHEMA_LACKS
from providers.local.load_progress import LoadProgress, shown_progress
from providers.local.loading import AnyModel, ModelLoads
from providers.local.local_encoder import LocalEncoder
from providers.local.local_model import LocalModel
from providers.local.measures import measures
from providers.local.model_source import cache_folder
from providers.local.open_model import open_model
from providers.local.request_images import RequestImages
from providers.local.settings import LocalModelSettings, LocalSettings, read_settings
from providers.local.thinking import reads_effort

__all__ = ["LocalProvider", "ModelLoader"]

_FIELDS = frozenset(
    (
        # Generation.
        "tools", "tool_choice", "parallel_tool_calls", "output_format", "reasoning.include", "reasoning.effort",
        "reasoning.budget_tokens", "reasoning.mode",
        "max_tokens", "n", "best_of", "logprobs", "echo", "adapter", "priority", "cache_salt", "return_token_ids",
        "prompt_logprobs", "return_context_logits", "prompt_token_ids", "logprob_token_ids",
        "return_tokens_as_token_ids", "detokenize", "truncate_prompt_tokens", "suffix", "reasoning.separate",
        "spaces_between_special_tokens",
        "temperature", "top_p", "top_p_min", "top_k", "min_p", "typical_p",
        "repetition_penalty", "presence_penalty", "frequency_penalty",
        "logit_bias", "seed", "stop", "stop_token_ids", "include_stop", "ignore_eos", "min_tokens",
        "allowed_token_ids", "bad_words", "use_beam_search", "length_penalty", "early_stopping", "skip_special_tokens",
        "template.kwargs", "template.add_generation_prompt", "template.continue_final_message",
        "template.add_special_tokens", "template.documents", "template.chat_template",
        # Labels and hints, which change nothing about the answer.
        "user", "safety_identifier", "metadata", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",
    )
)  # fmt: skip
_PARTS: frozenset[type[Part]] = frozenset((Text, Refusal, Reasoning, ToolCall, ToolResult))
_CAPABILITIES = Capabilities(
    fields=_FIELDS,
    parts=_PARTS,
    tool_kinds=frozenset(("function", CUSTOM)),
    messages=True,
    prompts=True,
    output_formats=FORMAT_KINDS,
    schema_lacks=SCHEMA_LACKS,
)
_ANY_SEED = -1
"""What clients of local servers send for no seed at all."""
_IMAGE_WORKERS = 2
"""Images that are decoded at once, which bounds the memory for it."""
_NO_GENERATION = Capabilities(fields=frozenset(), parts=frozenset(), messages=False)


def _lacks(model: LocalModel) -> frozenset[str]:
    """The fields that this model's files rule out."""
    lacks = set()
    if model.infill is None:
        lacks.add("suffix")
    if not model.formats.reads_calls:
        lacks |= {"tools", "tool_choice", "parallel_tool_calls"}
    if model.template is None or not reads_effort(model.template):
        lacks.add("reasoning.effort")
    if model.formats.reasoning is None:
        lacks.add("reasoning.budget_tokens")
    return frozenset(lacks)


@lru_cache
def _capabilities(
    lacks: frozenset[str], *, reads_images: bool, thinks: bool, kinds: frozenset[str] = frozenset()
) -> Capabilities:
    parts = _PARTS | {Image} if reads_images else _PARTS
    return with_fields(_CAPABILITIES, fields=_FIELDS - lacks, parts=parts, foreign_parts=kinds, thinks=thinks)


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
        self._refused = frozenset() if local.request_templates else frozenset(("template.chat_template",))

        def load_shown(name: str) -> AnyModel:
            with shown_progress(name) as progress:
                return load(name, local.models[name], local, progress)

        self._loads = ModelLoads(load_shown, wait_s=settings.limits.first_token_s, folders=_folders(local))
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
        loaded = self._loads.loaded(model)
        if isinstance(loaded, LocalEncoder):
            return _NO_GENERATION
        if loaded is None:
            return _capabilities(self._refused, reads_images=True, thinks=True)
        kinds = frozenset[str]() if loaded.template is None else loaded.template.part_kinds
        formats = loaded.formats
        return _capabilities(
            self._refused | _lacks(loaded),
            reads_images=loaded.images is not None,
            thinks=formats.reasoning is not None or formats.has_channels,
            kinds=kinds,
        )

    def readiness(self, model: str) -> Readiness:
        self._check_known(model)
        return self._loads.readiness(model)

    async def models(self) -> Sequence[ModelEntry]:
        return [
            ModelEntry(
                id=entry,
                created=self._created,
                owned_by=self._name,
                context=self._context(name),
                inputs=self._inputs(name),
                defaults=self._defaults(name),
                abilities=self._abilities(name),
            )
            for name in self._models
            for entry in (name, *(f"{name}:{adapter}" for adapter in self._adapters(name)))
        ]

    async def load_adapter(self, adapter: AdapterFolder) -> None:
        engine = (await self._ready(adapter.model)).engine
        if f"{adapter.model}:{adapter.name}" in self._models:
            raise InvalidRequest.at("adapter", f"'{adapter.model}:{adapter.name}' is a model already")
        try:
            await asyncio.to_thread(engine.load_adapter, adapter.name, Path(adapter.folder))
        except ModelLoadError as error:
            raise InvalidRequest.at("adapter", str(error)) from error
        except InvalidInput as error:
            raise InvalidRequest(str(error), param=error.param) from error

    async def unload_adapter(self, adapter: AdapterName) -> None:
        engine = (await self._ready(adapter.model)).engine
        try:
            engine.unload_adapter(adapter.name)
        except UnknownAdapter as error:
            raise ModelNotFound(f"the model '{adapter.model}:{adapter.name}' does not exist", param="model") from error

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
        model = await self._any(request.model)
        return (len(await prompt_tokens.prompt_ids(model, request, self._images(request))),)

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        """See `providers.abilities.Tokenizer`."""
        images = self._images(request.request)
        return await prompt_tokens.tokenize(await self._any(request.model), request, images)

    async def detokenize(self, request: DetokenizeRequest) -> str:
        """See `providers.abilities.Tokenizer`."""
        return prompt_tokens.detokenize(await self._any(request.model), request)

    def embedding_fields(self, model: str) -> frozenset[str]:
        return local_encoder.EMBEDDING_FIELDS

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """See `providers.abilities.Embedder`."""
        return await local_encoder.embed(await self._encoder(request.model, "gives no embeddings"), request)

    def rerank_fields(self, model: str) -> frozenset[str]:
        return local_encoder.RERANK_FIELDS

    async def rerank(self, request: RerankRequest) -> RerankResult:
        """See `providers.abilities.Reranker`."""
        return await local_encoder.rerank(await self._encoder(request.model, "does not rank"), request)

    async def aclose(self) -> None:
        await self._loads.aclose()
        self._image_workers.shutdown(wait=False)

    def _images(self, request: Request) -> RequestImages:
        return RequestImages(request, self._fetcher, self._image_workers)

    def _context(self, model: str) -> int | None:
        loaded = self._loads.loaded(model)
        if isinstance(loaded, LocalEncoder):
            return loaded.engine.info.max_tokens
        return None if loaded is None else loaded.engine.max_context

    def _inputs(self, model: str) -> tuple[str, ...] | None:
        """Known once its files are read."""
        loaded = self._loads.loaded(model)
        if not isinstance(loaded, LocalModel):
            return None
        return () if loaded.images is None else ("image",)

    def _defaults(self, model: str) -> Mapping[str, float] | None:
        """Known once its files are read."""
        loaded = self._loads.loaded(model)
        if not isinstance(loaded, LocalModel):
            return None
        return {name: value for name, value in asdict(loaded.defaults).items() if value is not None}

    def _abilities(self, model: str) -> frozenset[str] | None:
        """Known once its files are read."""
        loaded = self._loads.loaded(model)
        if isinstance(loaded, LocalEncoder):
            return frozenset((RANK,)) if loaded.scores else frozenset((EMBED, RANK))
        return None if loaded is None else frozenset((GENERATE,))

    def _adapters(self, model: str) -> Sequence[str]:
        """Those that are loaded; those of run.yaml while the model is not."""
        loaded = self._loads.loaded(model)
        return loaded.engine.adapters if isinstance(loaded, LocalModel) else tuple(self._models[model].adapters)

    async def _any(self, model: str) -> AnyModel:
        self._check_known(model)
        return await self._loads.ready(model)

    async def _ready(self, model: str) -> LocalModel:
        """Raises UnsupportedParameter for one that does not generate."""
        found = await self._any(model)
        if not isinstance(found, LocalModel):
            raise lacks(model, "does not generate text")
        return found

    async def _encoder(self, model: str, otherwise: str) -> LocalEncoder:
        """Raises UnsupportedParameter for one that generates."""
        found = await self._any(model)
        if not isinstance(found, LocalEncoder):
            raise lacks(model, f"generates text and {otherwise}")
        return found

    def _check_known(self, model: str) -> None:
        if model not in self._models:
            raise ModelNotFound(f"the model '{model}' does not exist", param="model")

    async def _answer(self, images: RequestImages, request: Request) -> AsyncGenerator[Batch, None]:
        """The answer to a request for one choice, or for the best choices of one prompt."""
        model = await self._ready(request.model)
        answer = answer_best if asks_for_best(request) else answer_one
        try:
            async with aclosing(answer(model, request, images, self._new_call_id)) as batches:
                async for batch in batches:
                    yield batch
        except EngineError as error:
            raise gateway_error(error, request) from error
