"""Azure OpenAI: OpenAI's dialect under names of deployments, in the v1 API or the classic one, with a key or a token.

`base_url` of v1 ends in `/openai/v1`, that of the classic API (`api_version` is set) in `/openai`. Without a key a
token of Entra is got: azure-identity is imported when the first provider needs it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from adapters.canonical.errors import UpstreamAuth
from adapters.model_path import model_path
from providers.base import ProviderSettings
from providers.remote.account_token import AccountToken
from providers.remote.http import Sign
from providers.remote.openai_compatible import OpenAICompatible
from providers.remote.vendors import VENDORS

__all__ = ["AzureEndpoint", "build"]

_SCOPE = "https://cognitiveservices.azure.com/.default"


def _entra_token(provider: str) -> AccountToken:
    """Of the surroundings' own identity. Raises ImportError where the library is not installed."""
    try:
        from azure.core.exceptions import ClientAuthenticationError
        from azure.identity import DefaultAzureCredential
    except ImportError as error:
        raise ImportError(
            f"providers.{provider}: Azure without an api_key needs azure-identity; install llm-protocol-gateway[azure]"
        ) from error
    credential: Any = None

    def get() -> tuple[str, float]:
        nonlocal credential
        try:
            if credential is None:
                credential = DefaultAzureCredential()
            found = credential.get_token(_SCOPE)
        except ClientAuthenticationError as error:
            raise UpstreamAuth(f"{provider}: no token from Entra, {type(error).__name__}") from error
        return str(found.token), float(found.expires_on)

    return AccountToken(get)


class AzureEndpoint:
    """`deployments` are names of deployments by those of models; a model without one is called by its own name.

    `api_version` None: the v1 API, which names the deployment in the body alone.
    """

    def __init__(self, deployments: Mapping[str, str], *, api_version: str | None, sign: Sign | None) -> None:
        self._deployments = deployments
        self._version = None if api_version is None else quote(api_version, safe="")
        self.sign = sign

    @property
    def list_path(self) -> str:
        return "/models" if self._version is None else f"/models?api-version={self._version}"

    def path(self, path: str, model: str) -> str:
        if self._version is None:
            return path
        deployment = model_path(self.upstream_model(model))
        return f"/deployments/{deployment}{path}?api-version={self._version}"

    def upstream_model(self, model: str) -> str:
        return self._deployments.get(model, model)


def build(settings: ProviderSettings) -> OpenAICompatible:
    """Raises ValueError on settings that can't work, ImportError without azure-identity where no key is given."""
    vendor = VENDORS["azure"]
    api_version = settings.options.get("api_version")
    deployments = settings.options.get("deployments", {})
    if not isinstance(deployments, Mapping):
        raise ValueError(f"providers.{settings.name}.deployments: expected names of deployments by those of models")
    if api_version is not None:
        vendor = replace(vendor, forwarded_paths=frozenset())  # their deployment stands in a body that nobody reads
    endpoint = AzureEndpoint(
        {str(model): str(deployment) for model, deployment in deployments.items()},
        api_version=None if api_version is None else str(api_version),
        sign=None if settings.api_key else _entra_token(settings.name).sign,
    )
    return OpenAICompatible(settings, vendor, endpoint)
