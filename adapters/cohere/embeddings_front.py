"""Embeddings towards clients of Cohere: POST /v2/embed.

An input of one text is that text; any other (pictures, several parts) is Cohere's own to read. Vectors are float32:
types of fewer bits are refused by name.
"""

from base64 import b64encode
from typing import Annotated, Any, Literal

import orjson
from msgspec import Meta, Raw
from msgspec.json import Decoder

from adapters.canonical.embedding import CUT_TO_WINDOW, EmbeddingRequest, EmbeddingResult, numbers
from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import Opaque
from adapters.canonical.request import Prompt
from adapters.cohere.vocabulary import EMBED, IMAGE
from adapters.cohere_purposes import PURPOSES
from adapters.field_types import NAME, POSITIVE, TEXT, TEXTS
from adapters.front import AnswerHead
from adapters.json_fields import JsonObject, parse_object, parse_object_at
from adapters.raw_json import OBJECTS

__all__ = ["CohereEmbedFront"]

_MAX_INPUTS = 2048
_TEXTS = Decoder(Annotated[list[str], Meta(max_length=_MAX_INPUTS)])
_ROWS = Decoder(Annotated[list[Raw], Meta(max_length=_MAX_INPUTS)])
_CUT = Decoder(Literal["NONE", "END"])
_SPELLINGS = {"dimensions": "output_dimension", "purpose": "input_type", "truncate_prompt_tokens": "truncate"}
_WRITTEN = ("float", "base64")


class CohereEmbedFront:
    """The client has to say what its vectors are for, so that a target without such words is asked all the same."""

    id_prefix = "emb-"

    def client_field(self, name: str) -> str:
        """The client's spelling of a canonical field."""
        return _SPELLINGS.get(name, name)

    def parse(self, body: bytes, *, max_depth: int, request_id: str) -> EmbeddingRequest:
        """Raises InvalidRequest, naming the path."""
        fields = parse_object(body, max_depth=max_depth)
        model = fields.require("model", NAME)
        word = fields.require("input_type", TEXT)
        if word not in PURPOSES and word != IMAGE:
            expected = ", ".join([*PURPOSES, IMAGE])
            raise InvalidRequest.at("input_type", f"expected one of {expected}")
        cut, most = fields.take("truncate", _CUT), fields.take("max_tokens", POSITIVE)
        if cut == "NONE" and most is not None:
            raise InvalidRequest.at("max_tokens", "with truncate NONE nothing is cut")
        written = fields.take("embedding_types", TEXTS) or [_WRITTEN[0]]
        if len(written) > 1 or written[0] not in _WRITTEN:
            raise InvalidRequest.at("embedding_types", "expected one of float and base64")
        inputs = _inputs(fields)
        dimensions = fields.take("output_dimension", POSITIVE)
        extras = fields.rest()
        if word == IMAGE:
            extras["input_type"] = b'"image"'
        return EmbeddingRequest(
            model=model,
            dialect=EMBED,
            inputs=inputs,
            dimensions=dimensions,
            purpose=PURPOSES.get(word),
            purpose_is_required=True,
            truncate_prompt_tokens=CUT_TO_WINDOW if cut == "END" and most is None else most,
            cut_is_default=cut is None and most is None,
            base64=written[0] == "base64",
            request_id=request_id,
            extras=extras,
        )

    def render(self, request: EmbeddingRequest, result: EmbeddingResult, head: AnswerHead) -> bytes:
        """The body of the answer."""
        vectors: dict[str, list[Any]]
        if request.base64:
            vectors = {"base64": [b64encode(vector).decode() for vector in result.vectors]}
        else:
            vectors = {"float": [numbers(vector) for vector in result.vectors]}
        meta: dict[str, Any] = {"api_version": {"version": "2"}}
        if result.usage is not None and result.usage.prompt_tokens is not None:
            meta["billed_units"] = {"input_tokens": result.usage.prompt_tokens}
        texts = [each for each in request.inputs if isinstance(each, str)]
        found = {"response_type": "embeddings_by_type", "id": head.id, "embeddings": vectors, "texts": texts}
        return orjson.dumps({**found, "meta": meta})


def _inputs(fields: JsonObject) -> tuple[Prompt | Opaque, ...]:
    """Texts, images by their data URIs, or inputs of parts; Cohere takes one of the three."""
    texts, images = fields.take("texts", _TEXTS), fields.take("images", _TEXTS)
    rows = fields.take("inputs", _ROWS)
    given = [name for name, value in (("texts", texts), ("images", images), ("inputs", rows)) if value]
    if len(given) != 1:
        what = "expected texts, images or inputs" if not given else f"not beside {given[0]}"
        raise InvalidRequest.at(given[-1] if given else "texts", what)
    found: list[Prompt | Opaque] = [*(texts or ())]
    found += [Opaque(type=IMAGE, raw=orjson.dumps(image), origin=EMBED) for image in images or ()]
    found += [_input(bytes(raw), f"inputs[{i}]") for i, raw in enumerate(rows or ())]
    return tuple(found)


def _input(raw: bytes, path: str) -> Prompt | Opaque:
    parts = parse_object_at(raw, path).require("content", OBJECTS)
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        return JsonObject(parts[0], f"{path}.content[0]").require("text", TEXT)
    return Opaque(type="input", raw=raw, origin=EMBED)
