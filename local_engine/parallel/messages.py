"""The words between rank 0 and the workers: what it tells them, and what they report."""

import json
from dataclasses import asdict
from enum import IntEnum
from pathlib import Path
from typing import Any

from local_engine.config import EngineConfig
from local_engine.errors import EngineError, InvalidInput, ModelLoadError

__all__ = ["Kind", "config_json", "error_fields", "reported_error", "told_config"]


class Kind(IntEnum):
    """Of a message to all workers. They report on the first four, in their order."""

    LOAD = 1
    """A path, that of a tower or null, and a configuration: read this rank's share."""
    OPEN = 2
    """A configuration: take a KV pool."""
    ADAPTER = 3
    """A number and a folder."""
    CLOSE = 4
    """Give the KV pool back."""
    STEP = 5
    """See `step_plan`."""
    LOGITS = 6
    """How many rows of hidden states rank 0 hands out next."""
    COPY = 7
    """Pairs of KV blocks."""


def config_json(config: EngineConfig, **more: object) -> bytes:
    return json.dumps({"config": asdict(config), **more}).encode()


def told_config(fields: dict[str, Any], device: str) -> EngineConfig:
    """Rank 0's configuration on this worker's device."""
    return EngineConfig(**(fields["config"] | {"device": device}))


def error_fields(error: Exception) -> dict[str, str]:
    """An error in a form that `reported_error` reads."""
    fields = {"kind": type(error).__name__, "text": str(error)}
    if isinstance(error, ModelLoadError):
        fields |= {"subject": str(error.path), "reason": error.reason}
    elif isinstance(error, InvalidInput):
        fields |= {"subject": error.param, "reason": error.reason}
    return fields


def reported_error(fields: dict[str, str]) -> EngineError:
    """The worker's error as one of ours."""
    match fields["kind"]:
        case "ModelLoadError":
            return ModelLoadError(Path(fields["subject"]), fields["reason"])
        case "InvalidInput":
            return InvalidInput(fields["subject"], fields["reason"])
        case kind:
            return EngineError(f"{kind}: {fields['text']}".splitlines()[0])
