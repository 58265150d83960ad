import asyncio

import pytest

from adapters.canonical.errors import NotReady
from gateway.keys import directory as module
from gateway.keys.directory import GRACE_S, KNOWN_S, KeyDirectory
from gateway.keys.stored import digest_of, kept, make_secret, parse_new_key
from gateway.storage.records import KeptKey

PEPPER = "pepper"
SECRETS = [make_secret(lambda letters, n=n: letters[n]) for n in range(20)]  # type: ignore[misc]


class Keys:
    """A database of keys, and its clock."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.kept: dict[bytes, KeptKey] = {}
        self.asked = 0
        self.is_down = False

    def add(self, secret: str) -> None:
        digest = digest_of(secret, PEPPER)
        self.kept[digest] = kept(parse_new_key(b'{"id":"k"}'), digest, 0)

    async def find(self, digest: bytes) -> KeptKey | None:
        self.asked += 1
        await asyncio.sleep(0)
        if self.is_down:
            raise NotReady("away")
        return self.kept.get(digest)

    def directory(self) -> KeyDirectory:
        return KeyDirectory(self.find, PEPPER, clock=lambda: self.time, now=lambda: self.time)


async def is_let_in(directory: KeyDirectory, secret: str) -> bool:
    return await directory.client(secret) is not None


async def test_a_key_is_asked_for_once_by_all_who_show_it_and_again_after_a_while() -> None:
    keys = Keys()
    keys.add(SECRETS[0])
    directory = keys.directory()
    assert all(await asyncio.gather(*[is_let_in(directory, SECRETS[0]) for _ in range(5)]))
    assert await is_let_in(directory, SECRETS[0])
    assert keys.asked == 1
    keys.time += KNOWN_S
    keys.kept.clear()
    assert not await is_let_in(directory, SECRETS[0])


async def test_what_has_not_the_form_of_a_key_never_reaches_the_database() -> None:
    keys = Keys()
    for secret in ("", "gw-", "sk-abc", SECRETS[0] + "x", SECRETS[0][:-1] + "é"):
        assert not await is_let_in(keys.directory(), secret)
    assert keys.asked == 0


async def test_a_hash_under_another_secret_lets_nobody_in() -> None:
    keys = Keys()
    keys.add(SECRETS[0])
    other = KeyDirectory(keys.find, "another", clock=lambda: 0.0, now=lambda: 0.0)
    assert not await is_let_in(other, SECRETS[0])


async def test_a_key_with_an_id_of_run_yaml_lets_nobody_in() -> None:
    keys = Keys()
    keys.add(SECRETS[0])
    clock = {"clock": lambda: 0.0, "now": lambda: 0.0}
    assert not await is_let_in(KeyDirectory(keys.find, PEPPER, taken=["other", "k"], **clock), SECRETS[0])
    assert await is_let_in(KeyDirectory(keys.find, PEPPER, taken=["other"], **clock), SECRETS[0])


async def test_known_keys_go_on_for_a_while_without_the_database_and_unknown_ones_do_not() -> None:
    keys = Keys()
    keys.add(SECRETS[0])
    directory = keys.directory()
    assert await is_let_in(directory, SECRETS[0])
    keys.is_down = True
    keys.time += KNOWN_S + 1
    assert await is_let_in(directory, SECRETS[0])
    with pytest.raises(NotReady):
        await directory.client(SECRETS[1])
    keys.time += GRACE_S
    with pytest.raises(NotReady):
        await directory.client(SECRETS[0])


async def test_a_client_that_leaves_does_not_take_the_question_of_others_with_it() -> None:
    keys = Keys()
    keys.add(SECRETS[0])
    directory = keys.directory()
    first, second = (asyncio.ensure_future(is_let_in(directory, SECRETS[0])) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KNOWN", 3)
    keys = Keys()
    directory = keys.directory()
    for secret in SECRETS:
        await directory.client(secret)
    assert len(directory._known) == 3
