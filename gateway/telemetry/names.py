"""Every name that leaves in metrics and traces, in one place.

Those of OpenTelemetry's semantic conventions for generative AI (1.38, read 2026-11) where it has one, `gateway.*`
elsewhere. In Prometheus the dots are underscores and the unit is a suffix, as OpenTelemetry's own exporter writes them,
so that one dashboard reads both.
"""

from dataclasses import dataclass

__all__ = [
    "ACTIVE_REQUESTS",
    "ATTEMPTS",
    "ATTEMPT_DURATION",
    "BREAKER_STATE",
    "CACHE_LOOKUPS",
    "CLIENT",
    "COST",
    "ENGINE",
    "HELD_BODIES",
    "INPUT_MESSAGES",
    "KEY",
    "KIND",
    "MODEL",
    "OUTCOME",
    "OUTPUT_MESSAGES",
    "PAUSED",
    "PROVIDER",
    "REQUESTS",
    "REQUEST_DURATION",
    "REQUEST_ID",
    "RESULT",
    "ROUTE",
    "SERIES_LEFT_OUT",
    "SESSION",
    "STATE",
    "STATUS",
    "STREAM",
    "TARGET_IN_FLIGHT",
    "TEAM",
    "TIME_PER_OUTPUT_TOKEN",
    "TIME_TO_FIRST_TOKEN",
    "TOKENS",
    "TOKEN_TYPE",
    "TOKEN_USAGE",
    "UNDECLARED_CALLS",
    "UPSTREAM_MODEL",
    "USAGE_INPUT",
    "USAGE_OUTPUT",
    "ERROR",
    "QUEUE",
    "Name",
    "prometheus_label",
    "prometheus_name",
]


@dataclass(frozen=True, slots=True)
class Name:
    """A metric: its name, its unit as UCUM writes it, and what it says."""

    name: str
    unit: str
    help: str


REQUEST_DURATION = Name("gen_ai.server.request.duration", "s", "From the request's arrival to the end of its answer.")
TIME_TO_FIRST_TOKEN = Name(
    "gen_ai.server.time_to_first_token", "s", "From a streamed request's arrival to its first output."
)
TIME_PER_OUTPUT_TOKEN = Name(
    "gen_ai.server.time_per_output_token", "s", "Between two tokens of a stream, after the first one."
)
TOKEN_USAGE = Name("gen_ai.client.token.usage", "{token}", "Tokens of a request.")
REQUESTS = Name("gateway.requests", "{request}", "Requests that ended, by status and class of error.")
QUEUE = Name("gateway.queue.duration", "s", "From a request's arrival to the call that answered it.")
TOKENS = Name("gateway.tokens", "{token}", "Tokens, also those that are parts of others (cached, reasoning).")
COST = Name("gateway.cost", "{USD}", "Dollars, by the prices file.")
CACHE_LOOKUPS = Name("gateway.cache.lookups", "{request}", "Requests that looked into the response cache.")
ATTEMPTS = Name("gateway.attempts", "{attempt}", "Calls of targets that ended.")
ATTEMPT_DURATION = Name("gateway.attempt.duration", "s", "Of one call of a target.")
UNDECLARED_CALLS = Name("gateway.tool_calls.undeclared", "{call}", "Calls of tools that their request does not have.")
ACTIVE_REQUESTS = Name("gateway.requests.active", "{request}", "Requests that are being served.")
HELD_BODIES = Name("gateway.request.bodies.held", "By", "Bytes of request bodies in memory.")
BREAKER_STATE = Name("gateway.breaker.state", "1", "1 for the state that the breaker of a target is in.")
PAUSED = Name("gateway.target.pause", "s", "Until a target may be asked again.")
TARGET_IN_FLIGHT = Name("gateway.target.active", "{attempt}", "Calls of a target that run.")
SERIES_LEFT_OUT = Name(
    "gateway.series.left_out", "{request}", "Requests counted together, since there are too many names."
)
ENGINE = Name("gateway.engine", "1", "The local engine")
"""Followed by what it is of: `gateway.engine.running`."""

ROUTE = "http.route"
CLIENT = "client.address"
STATUS = "http.response.status_code"
ERROR = "error.type"
PROVIDER = "gen_ai.provider.name"
MODEL = "gen_ai.request.model"
UPSTREAM_MODEL = "gen_ai.response.model"
TOKEN_TYPE = "gen_ai.token.type"
USAGE_INPUT = "gen_ai.usage.input_tokens"
USAGE_OUTPUT = "gen_ai.usage.output_tokens"
SESSION = "gen_ai.conversation.id"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
KEY = "gateway.key"
TEAM = "gateway.team"
KIND = "gateway.attempt.kind"
OUTCOME = "gateway.attempt.outcome"
RESULT = "gateway.cache.result"
STATE = "gateway.breaker.state"
REQUEST_ID = "gateway.request.id"
STREAM = "gateway.stream"

_SUFFIXES = {"s": "_seconds", "By": "_bytes", "{USD}": "_usd"}


def prometheus_name(name: Name) -> str:
    return name.name.replace(".", "_") + _SUFFIXES.get(name.unit, "")


def prometheus_label(name: str) -> str:
    return name.replace(".", "_")
