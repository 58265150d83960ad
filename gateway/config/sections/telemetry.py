"""`telemetry:` and `prices:`: what is told about requests, and what they cost."""

from typing import Literal

from pydantic import Field

from gateway.config.sections.section import FrozenMap, HttpUrl, LocalPath, Secret, Section, empty_map

__all__ = ["Prices", "Telemetry"]


class Telemetry(Section):
    log: Literal["json", "text"] = Field(default="json", description="Form of the log lines on stderr.")
    prometheus: bool = Field(default=False, description="Serve /metrics.")
    otlp: HttpUrl | None = Field(default=None, description="Address of an OpenTelemetry collector.")
    otlp_protocol: Literal["auto", "grpc", "http"] = Field(
        default="auto", description="How the collector is spoken to; auto: over gRPC on port 4317, else over HTTP."
    )
    otlp_headers: FrozenMap[Secret] = Field(
        default_factory=empty_map, description="Headers of every call of the collector, such as its key."
    )
    sample: float = Field(default=1, ge=0, le=1, description="Share of the requests that are traced.")
    content: Literal["off", "on"] = Field(default="off", description="Do traces hold prompts and answers?")


class Prices(Section):
    file: LocalPath = Field(description="YAML file of prices.")
