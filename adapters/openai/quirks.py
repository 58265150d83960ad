"""What differs between OpenAI-shaped upstreams, as data. A vendor is a row that fills this in."""

from collections.abc import Mapping

from msgspec import Struct

__all__ = ["Quirks"]


class Quirks(Struct, frozen=True, kw_only=True):
    """`limit_field` is where the token limit of chat goes. `names` overrides wire names of fields, by canonical name
    (`{"repetition_penalty": "repeat_penalty"}`). `stream_options` False: the upstream refuses that field.
    `developer_role` False: it knows only `system`. `defaults` are raw body fields sent where the request has none.
    """

    limit_field: str = "max_tokens"
    names: Mapping[str, str] = {}
    stream_options: bool = True
    developer_role: bool = True
    defaults: Mapping[str, bytes] = {}
