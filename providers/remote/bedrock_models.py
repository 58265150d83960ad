"""What an account may call in a region: Bedrock's foundation models and inference profiles, from its control plane."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.json import Decoder

from adapters.upstream import Upstream
from providers.base import ModelEntry
from providers.remote.http import HttpClient
from providers.remote.question import fetch_list

__all__ = ["control_url", "fetch_bedrock_models"]

_MODELS = "/foundation-models"
_PROFILES = "/inference-profiles?maxResults=1000"
_ON_DEMAND = "ON_DEMAND"
_OUTPUTS = frozenset(("TEXT", "EMBEDDING"))


class _Model(Struct, rename="camel"):
    model_id: str
    provider_name: str | None = None
    output_modalities: list[str] = []
    inference_types_supported: list[str] = []


class _ModelList(Struct, rename="camel"):
    model_summaries: list[_Model] = []


class _Profile(Struct, rename="camel"):
    inference_profile_id: str


class _ProfileList(Struct, rename="camel"):
    inference_profile_summaries: list[_Profile] = []


_decode_models = Decoder(_ModelList).decode
_decode_profiles = Decoder(_ProfileList).decode


def control_url(base_url: str) -> str:
    """Where lists are, beside the host that answers; a host of another name is taken to have both."""
    return base_url.replace("//bedrock-runtime", "//bedrock", 1)


async def fetch_bedrock_models(client: HttpClient, upstream: Upstream) -> Sequence[ModelEntry]:
    """Models that are called by their own id, then profiles, which stand for the others. `upstream` reads a refusal."""
    models = await fetch_list(client, upstream, _MODELS, _decode_models)
    profiles = await fetch_list(client, upstream, _PROFILES, _decode_profiles)
    found = {row.model_id: _entry(row.model_id, row.provider_name) for row in models.model_summaries if _is_called(row)}
    for profile in profiles.inference_profile_summaries:
        found.setdefault(profile.inference_profile_id, _entry(profile.inference_profile_id, None))
    return tuple(found.values())


def _is_called(row: _Model) -> bool:
    return _ON_DEMAND in row.inference_types_supported and not _OUTPUTS.isdisjoint(row.output_modalities)


def _entry(name: str, owner: str | None) -> ModelEntry:
    return ModelEntry(id=name, owned_by=owner or "bedrock")
