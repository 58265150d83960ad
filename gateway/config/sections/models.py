"""`models:`: the public names, and which targets stand behind each."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from gateway.config.sections.auth import Budget, Limits
from gateway.config.sections.section import Amount, FrozenMap, Section, Text, Unsupported, empty_map

__all__ = ["Alias", "Models", "Shadow", "Target", "TargetName"]

TargetName = Annotated[str, Field(pattern=r"^[^/\s]+/\S.*$")]
"""`provider/model`; the model's own name may hold slashes and colons."""


class Target(Section):
    use: TargetName = Field(description="provider/model")
    weight: float = Field(default=1, gt=0, allow_inf_nan=False, description="Share of the traffic.")
    tags: tuple[Text, ...] = Field(default=(), description="Marks that requests may ask for.")


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
    unsupported_params: Unsupported | None = Field(
        default=None, description="What happens to a parameter that the target does not know; default: the provider's."
    )
    limits: Limits | None = Field(default=None, description="Rates of this name, all clients together.")
    budget: Budget | None = Field(default=None, description="Spending on this name, all clients together.")


def _short_alias(value: object) -> object:
    return {"targets": ({"use": value},)} if isinstance(value, str) else value


AnyAlias = Annotated[Alias, BeforeValidator(_short_alias, json_schema_input_type=TargetName | Alias)]
Models = FrozenMap[AnyAlias]
