"""What differs between OpenAI-shaped upstreams, as data. A vendor is a row that fills this in."""

from collections.abc import Mapping

from msgspec import Struct

from adapters.tool_names import Ids, NameRule

__all__ = ["Quirks"]


class Quirks(Struct, frozen=True, kw_only=True):
    """`limit_field` is where the token limit of chat goes. `names` overrides wire names of fields, by canonical name
    (`{"repetition_penalty": "repeat_penalty"}`). `stream_options` False: the upstream refuses that field.
    `developer_role` False: it knows only `system`. `defaults` are raw body fields sent where the request has none.
    `tool_names`, `call_ids` and `user_ids` are what it allows these to be (the last: names of users, keys of caches).
    `cache_field` is where it takes cache hints on parts. `prefix` True: a last message of the assistant that is to be
    continued says so itself. `flat_media` True: sound and files stand in their parts as texts. `tool_media` False: its
    tool messages hold text alone. `end_marks` are texts for the end of a turn that it leaves in its answers.
    `thoughts_due` True: it refuses a turn of the assistant that does not say what was thought.
    """

    limit_field: str = "max_tokens"
    names: Mapping[str, str] = {}
    stream_options: bool = True
    developer_role: bool = True
    defaults: Mapping[str, bytes] = {}
    tool_names: NameRule | None = None
    call_ids: Ids | None = None
    user_ids: Ids | None = None
    cache_field: str | None = None
    prefix: bool = False
    flat_media: bool = False
    tool_media: bool = True
    end_marks: tuple[str, ...] = ()
    thoughts_due: bool = False
