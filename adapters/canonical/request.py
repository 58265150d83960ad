"""Requests: what was asked. Unset is None (or empty) all the way down; only a provider applies a default.

`set_fields` names what a request asks for, so that one place can compare it with what a target can express (law 8).
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import astuple, replace
from msgspec.structs import fields as struct_fields

from adapters.canonical.messages import CacheHint, MediaSource, Message, ProviderData
from adapters.canonical.tool_kinds import FUNCTION

__all__ = [
    "AUTO",
    "EXPRESSIBLE_FIELDS",
    "NONE",
    "REQUIRED",
    "LoraAdapter",
    "Namespace",
    "OutputFormat",
    "Prompt",
    "ReasoningOptions",
    "Request",
    "Sampling",
    "TemplateOptions",
    "Tool",
    "ToolChoice",
    "set_fields",
    "without_fields",
]

AUTO = "auto"
NONE = "none"
REQUIRED = "required"


class Namespace(Struct, frozen=True, kw_only=True):
    """A group of tools."""

    name: str
    description: str | None = None


class Tool(Struct, frozen=True, kw_only=True):
    """A tool that the model may call.

    Kinds: `function` (`parameters` is its JSON Schema, raw), `custom` (`grammar` is the raw format object, None: free
    text), `hosted` and `mcp` (`raw` is the whole declaration of the client's dialect, `name` its type word). A grammar
    has chat's form. `namespace` is the group that the client put the tool into; `name` begins with the group's name.
    `description` is the tool's own; targets without groups are told `whole_description`.
    """

    kind: str
    name: str
    description: str | None = None
    parameters: bytes | None = None
    strict: bool | None = None
    grammar: bytes | None = None
    raw: bytes | None = None
    namespace: Namespace | None = None
    cache: CacheHint | None = None
    extras: ProviderData | None = None
    in_messages: bool = False
    """It stands among the messages too, where targets of the client's own dialect read it."""

    @property
    def whole_description(self) -> str | None:
        """What is said of the tool's group, then of the tool."""
        if self.namespace is None or not self.namespace.description:
            return self.description
        return "\n\n".join(filter(None, (self.namespace.description, self.description)))


class ToolChoice(Struct, frozen=True, kw_only=True):
    """`mode` is auto, none or required. `name`: this one must be called. `allowed`: only these may be called."""

    mode: str
    name: str | None = None
    kind: str = FUNCTION
    allowed: tuple[bytes, ...] | None = None
    """Raw tool references of `allowed_tools`."""
    raw: bytes | None = None
    """The whole choice as the client's dialect has it, where it names a hosted tool (`kind` is hosted)."""


class OutputFormat(Struct, frozen=True, kw_only=True):
    """What the answer's text must look like. `raw` is the format as the client spelled it.

    Kinds: text, json_object, json_schema (`schema` raw, with name, description, strict), regex and grammar (`text`),
    choice (`choices`), structural_tag (`schema` holds the tag, raw). `whitespace` is a regex for what stands between
    the tokens of JSON ("": nothing), `unmapped` names options that have no canonical form. `path` is where schema,
    text or choices stand in the client's body; `field` is the top-level field, where it is not the dialect's own one.
    """

    kind: str
    name: str | None = None
    description: str | None = None
    schema: bytes | None = None
    strict: bool | None = None
    text: str | None = None
    choices: tuple[str, ...] | None = None
    whitespace: str | None = None
    unmapped: tuple[str, ...] = ()
    path: str | None = None
    field: str | None = None
    raw: bytes | None = None


class Sampling(Struct, frozen=True, kw_only=True):
    """How tokens are drawn and where generation ends. Counts are tokens."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    top_p_min: float | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    temperature_last: bool | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: tuple[str, ...] | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_last_n: int | None = None
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    stop: tuple[str, ...] | None = None
    stop_token_ids: tuple[int, ...] | None = None
    include_stop: bool | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    bad_words: tuple[str, ...] | None = None
    allowed_token_ids: tuple[int, ...] | None = None
    use_beam_search: bool | None = None
    length_penalty: float | None = None
    early_stopping: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None


class ReasoningOptions(Struct, frozen=True, kw_only=True):
    """`effort` is none, minimal, low, medium, high, xhigh or max; `budget_tokens` a cap; `include` False hides it.
    `separate` False leaves it in the text, as the model wrote it."""

    effort: str | None = None
    summary: str | None = None
    budget_tokens: int | None = None
    include: bool | None = None
    separate: bool | None = None
    context: str | None = None
    mode: str | None = None


class TemplateOptions(Struct, frozen=True, kw_only=True):
    """How a local model's chat template is rendered. `kwargs` and `documents` are raw JSON."""

    chat_template: str | None = None
    kwargs: bytes | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    documents: bytes | None = None


class LoraAdapter(Struct, frozen=True, kw_only=True):
    name: str
    raw: bytes | None = None


Prompt = str | tuple[int, ...]
"""Of a completion without roles: text, or token ids."""


class Request(Struct, frozen=True, kw_only=True):
    """One generation request. Exactly one of `messages` and `prompts` is set.

    `dialect` names the client's dialect; `extras` are its top-level fields that we do not map, raw JSON by name.
    `logprobs` is the number of alternatives wanted for each token (0: the chosen one alone; None: off); the same for
    `prompt_logprobs`. `metadata` and the fields typed `bytes` are raw JSON.
    """

    model: str
    dialect: str
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False

    messages: tuple[Message, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    """What the model gets in place of the messages, which the client has rendered itself."""
    prompts: tuple[Prompt, ...] | None = None
    suffix: str | None = None
    echo: bool | None = None

    tools: tuple[Tool, ...] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = None
    output_format: OutputFormat | None = None

    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    open_ended: bool = False
    """The answer may fill the window, where that has no room for `max_tokens` or nothing is said of it. Otherwise the
    former is an error, and for prompts the latter a default of the API."""
    truncate_prompt_tokens: int | None = None
    truncation: str | None = None
    """auto: a prompt beyond the window may lose its oldest turns."""
    n: int | None = None
    best_of: int | None = None

    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: tuple[int, ...] | None = None
    """Tokens whose logprobs are told beside the likeliest ones."""
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    return_context_logits: bool | None = None
    detokenize: bool | None = None

    reasoning: ReasoningOptions | None = None
    template: TemplateOptions | None = None
    modalities: tuple[str, ...] | None = None
    audio: bytes | None = None
    verbosity: str | None = None
    prediction: bytes | None = None
    web_search_options: bytes | None = None
    moderation: bytes | None = None

    adapter: LoraAdapter | None = None
    priority: int | None = None
    cache_salt: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: bytes | None = None
    keep_alive_s: float | None = None
    """How long a local model stays in memory after the answer; -1: for ever."""
    service_tier: str | None = None
    store: bool | None = None
    metadata: bytes | None = None
    user: str | None = None
    safety_identifier: str | None = None
    include_obfuscation: bool | None = None
    request_id: str | None = None
    session_id: str | None = None

    extras: Mapping[str, bytes] = {}
    headers: Mapping[str, str] = {}
    """Headers of the client that an upstream of its own dialect gets (`adapters.front.Front.forwarded_headers`)."""
    mirrored: Mapping[str, bytes] = {}
    """Fields that the client's own renderer says again in the answer, raw JSON by name; no target reads them."""
    message_paths: tuple[str, ...] | None = None
    """Where each message stands in the client's body; None: at its own number in one list."""
    tool_paths: tuple[str, ...] | None = None
    """The same of the tools, where they do not all stand in that list at their own number."""
    fetched: dict[str, MediaSource] = {}
    """What stands at addresses that it names, as far as a target needed the bytes; shared by all forms that the request
    takes on its way, so that another try fetches nothing again."""
    encrypted_reasoning: bool = False
    """The client keeps the reasoning itself, sealed: what an upstream encrypts is asked for."""

    @property
    def num_choices(self) -> int:
        """How many choices the answer has: n for each prompt."""
        return (self.n or 1) * (len(self.prompts) if self.prompts is not None else 1)

    def message_path(self, number: int, field: str = "messages") -> str:
        """Where a message stands in the client's body, whose name for the list is `field`."""
        return f"{field}[{number}]" if self.message_paths is None else self.message_paths[number]

    def with_messages(self, kept: Sequence[tuple[int, Message]]) -> "Request":
        """With these messages alone, each with the place at which it, or what it was made of, stands here."""
        paths = self.message_paths
        return replace(
            self,
            messages=tuple([message for _, message in kept]),
            message_paths=None if paths is None else tuple([paths[place] for place, _ in kept]),
        )

    def tool_path(self, number: int) -> str:
        """Where a tool stands in the client's body."""
        return f"tools[{number}]" if self.tool_paths is None else self.tool_paths[number]


_ENVELOPE = frozenset(
    # How the answer is delivered, and what the gateway itself reads: no target has to express these.
    (
        "model", "dialect", "stream", "include_usage", "continuous_usage", "request_id", "session_id", "extras",
        "headers", "mirrored", "message_paths", "tool_paths", "open_ended", "fetched", "encrypted_reasoning",
    )
)  # fmt: skip
_GROUPS: dict[str, tuple[str, type[Struct]]] = {
    # Fields that are groups of fields: the prefix of their members' names, and their type.
    "sampling": ("", Sampling),
    "reasoning": ("reasoning.", ReasoningOptions),
    "template": ("template.", TemplateOptions),
}
_FIELDS = tuple(f.name for f in struct_fields(Request) if f.name not in _ENVELOPE and f.name not in _GROUPS)
_MEMBERS = {group: tuple(f.name for f in struct_fields(type_)) for group, (_, type_) in _GROUPS.items()}
_PLACES = {name: ("", name) for name in _FIELDS} | {
    _GROUPS[group][0] + member: (group, member) for group, members in _MEMBERS.items() for member in members
}

EXPRESSIBLE_FIELDS = frozenset(_PLACES)
"""Every name that `set_fields` can give."""

# The names as `set_fields` gives them, in the order of astuple; "" for what is no field to express.
_NAMES = tuple(f.name if f.name in EXPRESSIBLE_FIELDS else "" for f in struct_fields(Request))
_NAMES_IN = {group: tuple(_GROUPS[group][0] + member for member in members) for group, members in _MEMBERS.items()}


def set_fields(request: Request) -> list[str]:
    """The names of the fields that the client set, in declaration order.

    Members of Sampling have bare names (`top_p`), those of the other groups dotted ones (`reasoning.effort`).
    """
    values = zip(_NAMES, astuple(request), strict=True)
    names = [name for name, value in values if value is not None and name]
    for group, members in _NAMES_IN.items():
        holder = getattr(request, group)
        if holder is not None:
            names += [name for name, value in zip(members, astuple(holder), strict=True) if value is not None]
    return names


def without_fields(request: Request, names: Iterable[str]) -> Request:
    """The request with these fields unset. The names are those of `set_fields`."""
    changed: dict[str, dict[str, None]] = {}
    for name in names:
        group, member = _PLACES[name]
        changed.setdefault(group, {})[member] = None
    top: dict[str, object] = dict(changed.pop("", {}))
    for group, members in changed.items():
        top[group] = replace(getattr(request, group), **members)
    return replace(request, **top)
