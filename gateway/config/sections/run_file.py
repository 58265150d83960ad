"""The whole of run.yaml."""

from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from gateway.config.sections.alerts import Alerts
from gateway.config.sections.auth import Auth
from gateway.config.sections.models import Models
from gateway.config.sections.providers import Providers
from gateway.config.sections.reliability import Reliability
from gateway.config.sections.section import Section, empty_map
from gateway.config.sections.server import Server
from gateway.config.sections.state import Cache, Responses, Shared, Storage
from gateway.config.sections.telemetry import Prices, Telemetry
from gateway.config.sections.tools import Fetch, Guardrail, Tools

__all__ = ["RunFile"]


def _only_one(value: int) -> int:
    if value != 1:
        raise ValueError("expected 1, the only version there is")
    return value


Version = Annotated[int, AfterValidator(_only_one), WithJsonSchema({"const": 1})]


class RunFile(Section):
    """Configuration of the gateway."""

    version: Version = Field(description="Version of this format.")
    server: Server = Field(default_factory=Server, description="Address and limits of the server.")
    auth: Auth | None = Field(default=None, description="Who may call.")
    providers: Providers = Field(default_factory=empty_map, description="Where models are; an entry switches it on.")
    models: Models = Field(default_factory=empty_map, description="Public names for models.")
    reliability: Reliability = Field(default_factory=Reliability, description="Waiting and trying again.")
    responses: Responses | None = Field(default=None, description="The Responses API's state.")
    storage: Storage | None = Field(default=None, description="The database.")
    shared: Shared | None = Field(default=None, description="State that several replicas share.")
    cache: Cache | None = Field(default=None, description="Answers that are used again; off when absent.")
    tools: Tools | None = Field(default=None, description="Tools that the gateway itself runs.")
    fetch: Fetch | None = Field(default=None, description="How addresses in requests are fetched.")
    guardrails: tuple[Guardrail, ...] = Field(default=(), description="Checks of what goes in and out.")
    telemetry: Telemetry = Field(default_factory=Telemetry, description="Logs, metrics, traces.")
    prices: Prices | None = Field(default=None, description="What tokens cost.")
    alerts: Alerts | None = Field(default=None, description="What people are told, and where.")
