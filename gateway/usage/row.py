"""What is kept of one attempt. Plain values; knows no database."""

from typing import Literal

from msgspec import Struct

__all__ = ["USAGE_SUMS", "GroupedBy", "UsageRow"]

GroupedBy = Literal["key", "team", "end_user", "model", "provider", "upstream_model", "day"]
"""What sums can be asked for."""
USAGE_SUMS = (
    "attempts", "failed", "estimated", "prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_tokens",
    "reasoning_tokens", "cost_nano_usd",
)  # fmt: skip
"""What is added up."""


class UsageRow(Struct, frozen=True, array_like=True, gc=False):
    """`at` is Unix seconds, `status` `ok`, `cancelled` or an error's code. Missing tokens and costs are None, never 0.

    `key` is "" where no key is asked for, `team` where the key has none, `end_user` where they are not
    told apart. `model` is what the client asked for, by its public name.
    """

    at: float
    request_id: str
    key: str
    model: str
    provider: str
    upstream_model: str
    kind: str
    status: str
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    estimated: bool
    cost_nano_usd: int | None
    latency_ms: int
    ttft_ms: int | None
    team: str = ""
    end_user: str = ""
