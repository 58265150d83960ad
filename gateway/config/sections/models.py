"""`models:`: the public names, and which targets stand behind each."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from gateway.config.sections.auth import Budget, Limits
from gateway.config.sections.section import Amount, FrozenMap, Positive, Section, Text, Unsupported, empty_map

__all__ = ["TARGET_NAME", "Alias", "Conditions", "Models", "Shadow", "Target", "TargetName"]

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-goog-api-key"})

TARGET_NAME = r"^[^/\s]+/\S.*$"
TargetName = Annotated[str, Field(pattern=TARGET_NAME)]
"""`provider/model`; the model's own name may hold slashes and colons."""


def _one_star(value: str) -> str:
    if value.count("*") > 1:
        raise ValueError("expected at most one '*'")
    return value


def _alone(value: object) -> object:
    if not isinstance(value, str | tuple):
        raise ValueError("expected a text or a list of texts")
    return (value,) if isinstance(value, str) else value


def _differ(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) < len(values):
        raise ValueError("expected each value once")
    return values


def _header_names(conditions: Mapping[str, object]) -> Mapping[str, object]:
    seen: set[str] = set()
    for name in conditions:
        if _TOKEN.fullmatch(name) is None:
            raise ValueError(f"'{name}' is no name of a header")
        if name.lower() in _CREDENTIALS:
            raise ValueError(f"'{name}' holds a secret, expected another header")
        if name.lower() in seen:
            raise ValueError(f"'{name}' stands here twice, expected each header once")
        seen.add(name.lower())
    return conditions


Value = Annotated[Text, AfterValidator(_one_star)]
Values = Annotated[
    tuple[Value, ...],
    Field(min_length=1),
    AfterValidator(_differ),
    BeforeValidator(_alone, json_schema_input_type=Value | tuple[Value, ...]),
]
"""A text or a list of texts; in each one `*` stands for any text."""


class Conditions(Section):
    header: Annotated[FrozenMap[Values], AfterValidator(_header_names)] = Field(
        default_factory=empty_map, description="Values that headers of the request must have; * stands for any text."
    )
    metadata: FrozenMap[Values] = Field(
        default_factory=empty_map, description="Values that the metadata of the request's body must have."
    )
    key: FrozenMap[Values] = Field(
        default_factory=empty_map,
        description="Values that 'id', 'team' and the metadata of the client's key (or of its team) must have.",
    )

    @model_validator(mode="after")
    def _says_something(self) -> "Conditions":
        if not self.header and not self.metadata and not self.key:
            raise ValueError("expected a condition under 'header', 'metadata' or 'key'")
        return self


class Target(Section):
    use: TargetName = Field(description="provider/model")
    weight: float = Field(default=1, gt=0, allow_inf_nan=False, description="Share of the traffic.")
    tags: tuple[Text, ...] = Field(default=(), description="Marks that requests may ask for.")
    when: Conditions | None = Field(default=None, description="Which requests the target is for; default: all.")


class Shadow(Section):
    use: TargetName = Field(description="provider/model that sees a copy of the traffic.")
    percent: float = Field(gt=0, le=100, description="Share of the traffic that is copied.")


def _short_target(value: object) -> object:
    return {"use": value} if isinstance(value, str) else value


AnyTarget = Annotated[Target, BeforeValidator(_short_target, json_schema_input_type=TargetName | Target)]


class Alias(Section):
    targets: tuple[AnyTarget, ...] = Field(min_length=1, description="Where the requests go.")
    strategy: Literal["ordered", "weighted", "least_busy", "latency", "sticky"] = Field(
        default="ordered", description="Which target comes first. ordered: the first one that works."
    )
    on_failure: tuple[TargetName, ...] = Field(default=(), description="Tried in this order when the targets fail.")
    on_context_overflow: tuple[TargetName, ...] = Field(default=(), description="Tried when the prompt is too long.")
    on_content_filter: tuple[TargetName, ...] = Field(default=(), description="Tried when a filter refuses.")
    shadow: Shadow | None = Field(default=None, description="A target that sees a copy and whose answer is dropped.")
    hedge_s: Amount = Field(default=0, description="Seconds before a second target is asked as well; 0: off.")
    defaults: FrozenMap[object] = Field(
        default_factory=empty_map, description="Fields of a request that apply when the client leaves them out."
    )
    max_tokens: Positive | None = Field(
        default=None, description="Tokens of the longest answer; a larger limit of a request, and none, become this."
    )
    unsupported_params: Unsupported | None = Field(
        default=None, description="What happens to a parameter that the target does not know; default: the provider's."
    )
    limits: Limits | None = Field(default=None, description="Rates of this name, all clients together.")
    budget: Budget | None = Field(default=None, description="Spending on this name, all clients together.")


def _short_alias(value: object) -> object:
    return {"targets": ({"use": value},)} if isinstance(value, str) else value


AnyAlias = Annotated[Alias, BeforeValidator(_short_alias, json_schema_input_type=TargetName | Alias)]
Models = FrozenMap[AnyAlias]
