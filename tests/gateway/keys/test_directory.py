import asyncio
from functools import partial

import pytest

from adapters.canonical.errors import NotReady
from gateway.keys import directory as module
from gateway.keys.directory import GRACE_S, KNOWN_S, KeyDirectory
from gateway.keys.stored import Rotation, changed, digest_of, kept, make_secret, parse_new_key, rotated
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
        self.silence: asyncio.Event | None = None
        """Until it is set nobody is answered."""

    def add(self, secret: str) -> None:
        digest = digest_of(secret, PEPPER)
        self.kept[digest] = kept(parse_new_key(b'{"id":"k"}'), digest, 0)

    async def find(self, digest: bytes) -> KeptKey | None:
        self.asked += 1
        await asyncio.sleep(0)
        if self.silence is not None:
            await self.silence.wait()
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
    at_rest = partial(KeyDirectory, keys.find, PEPPER, clock=lambda: 0.0, now=lambda: 0.0)
    assert not await is_let_in(at_rest(taken=["other", "k"]), SECRETS[0])
    assert await is_let_in(at_rest(taken=["other"]), SECRETS[0])


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


async def test_a_database_that_is_silent_holds_no_known_key_up_and_the_others_not_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "KNOWN_WAIT_S", 0.01)
    monkeypatch.setattr(module, "UNKNOWN_WAIT_S", 0.02)
    keys = Keys()
    keys.add(SECRETS[0])
    directory = keys.directory()
    assert await is_let_in(directory, SECRETS[0])
    keys.silence = asyncio.Event()
    keys.time += KNOWN_S
    async with asyncio.timeout(1):
        assert all(await asyncio.gather(*[is_let_in(directory, SECRETS[0]) for _ in range(5)]))
        with pytest.raises(NotReady):
            await directory.client(SECRETS[1])
        assert keys.asked == 3
        keys.kept.clear()
        keys.silence.set()
        await asyncio.gather(*[asking.task for asking in directory._asking.values()])
    assert not await is_let_in(directory, SECRETS[0])  # what it said in the end is heard, though nobody waited for it
    assert keys.asked == 3


async def test_a_client_that_leaves_does_not_take_the_question_of_others_with_it() -> None:
    keys = Keys()
    keys.add(SECRETS[0])
    directory = keys.directory()
    first, second = (asyncio.ensure_future(is_let_in(directory, SECRETS[0])) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second


async def test_what_was_changed_elsewhere_holds_here_after_a_while() -> None:
    keys = Keys()
    keys.add(SECRETS[0])
    digest = digest_of(SECRETS[0], PEPPER)
    directory = keys.directory()

    async def rpm() -> int | None:
        client = await directory.client(SECRETS[0])
        assert client is not None
        return client.account.rules.rpm

    assert await rpm() is None
    keys.kept[digest] = changed(keys.kept[digest], {"limits": {"rpm": 7}}, keys.time)
    assert await rpm() is None
    keys.time += KNOWN_S
    assert await rpm() == 7


async def test_a_secret_that_was_rotated_is_good_until_its_grace_is_over_though_nobody_is_asked_again() -> None:
    keys = Keys()
    keys.add(SECRETS[0])
    old, new = digest_of(SECRETS[0], PEPPER), digest_of(SECRETS[1], PEPPER)
    key = rotated(keys.kept[old], new, Rotation(grace_s=5), keys.time)
    keys.kept = {old: key, new: key}
    directory = keys.directory()
    assert [await is_let_in(directory, secret) for secret in SECRETS[:3]] == [True, True, False]
    keys.time += 5
    assert [await is_let_in(directory, secret) for secret in SECRETS[:2]] == [False, True]
    assert keys.asked == 3


async def test_what_was_asked_before_a_change_is_not_remembered_after_it() -> None:
    keys = Keys()
    keys.add(SECRETS[0])
    key = keys.kept[digest_of(SECRETS[0], PEPPER)]
    directory = keys.directory()
    asking = asyncio.ensure_future(is_let_in(directory, SECRETS[0]))
    await asyncio.sleep(0)
    directory.forget(key)
    await asking
    keys.kept.clear()
    assert not await is_let_in(directory, SECRETS[0])


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KNOWN", 3)
    keys = Keys()
    directory = keys.directory()
    for secret in SECRETS:
        await directory.client(secret)
    assert len(directory._known) == 3
