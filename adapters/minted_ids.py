"""Ids of tool calls that were made here, for upstreams and clients that have none. They mean nothing outside."""

import uuid

__all__ = ["MINTED", "is_minted", "new_call_id", "new_id"]

MINTED = "gwcall_"
"""So they begin. One that stands for a place in a conversation is the same in every request."""


def is_minted(call_id: str) -> bool:
    return call_id.startswith(MINTED)


def new_id() -> str:
    return MINTED + uuid.uuid4().hex[:24]


def new_call_id() -> str:
    """In the form of OpenAI's, for clients and upstreams that give calls ids and go by them."""
    return f"call_{uuid.uuid4().hex[:24]}"
