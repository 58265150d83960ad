"""What a client keeps for the gateway opens for it alone, and only whole."""

import base64

import pytest

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import ProviderData, Reasoning
from adapters.openai.responses.sealing import ClientSeal, Sealer

THOUGHT = Reasoning(
    text="hm 👋",
    summary=("a", "b"),
    signature="sig",
    encrypted="rs_1:BLOB",
    origin="up",
    provider_data=ProviderData("openai.chat", {"reasoning_details": b'[{"x": 1}]'}),
)


def seal(key_id: str = "k1", secret: bytes = b"secret", owner: str = "ann") -> ClientSeal:
    return ClientSeal(Sealer(key_id, secret), owner)


def test_a_thought_comes_back_as_it_was() -> None:
    blob = seal().seal_thought(THOUGHT)
    assert seal().open_thought(blob, "input[0].encrypted_content") == THOUGHT
    assert ClientSeal.is_ours(blob)
    _, _, sealed = blob.rpartition(".")
    assert THOUGHT.text.encode() not in base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4))


def test_each_seal_is_another() -> None:
    assert seal().seal_thought(THOUGHT) != seal().seal_thought(THOUGHT)


def test_a_foreign_blob_is_not_ours() -> None:
    assert not ClientSeal.is_ours("gAAAAABblob==")


@pytest.mark.parametrize("other", [seal(key_id="k2"), seal(secret=b"other"), seal(owner="bob")])
def test_another_key_or_another_client_opens_nothing(other: ClientSeal) -> None:
    with pytest.raises(InvalidRequest) as caught:
        other.open_thought(seal().seal_thought(THOUGHT), "input[0].encrypted_content")
    assert (caught.value.param, caught.value.code) == ("input[0].encrypted_content", "invalid_encrypted_content")


def test_no_byte_can_be_changed_and_none_left_out() -> None:
    blob = seal().seal_thought(Reasoning(text="hm"))
    head, _, text = blob.rpartition(".")
    sealed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    for place in range(len(sealed)):
        changed = sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :]
        for broken in (changed, sealed[:place]):
            with pytest.raises(InvalidRequest):
                seal().open_thought(f"{head}.{base64.urlsafe_b64encode(broken).decode()}", "x")


@pytest.mark.parametrize("blob", ["gws1.", "gws1.k1.", "gws1.k1.!!", "gws1.k1.AAAA", "gws1.k1.é"])
def test_junk_under_our_mark_is_refused(blob: str) -> None:
    with pytest.raises(InvalidRequest):
        seal().open_thought(blob, "x")


def test_items_of_a_compaction_come_back_byte_for_byte_and_are_no_thought() -> None:
    items = [b'{"role": "user",  "content": "a"}', b'{"n": 1.50}']
    blob = seal().seal_items(items)
    assert seal().open_items(blob, "x") == items
    with pytest.raises(InvalidRequest):
        seal().open_thought(blob, "x")
