from collections.abc import Iterator

from gateway.config import foreign_words
from gateway.config.json_schema import generate_schema
from providers.registry import provider_types


def test_every_type_that_is_meant_is_known() -> None:
    meant = set(foreign_words._TYPES.values())
    assert meant <= provider_types()
    assert not foreign_words._TYPES.keys() & provider_types()


def test_every_key_that_is_meant_is_one_of_the_format() -> None:
    schema = generate_schema()
    assert [key for key in _meant_keys() if f'"{key}": {{' not in schema] == []


def _meant_keys() -> Iterator[str]:
    for keys in foreign_words._KEYS.values():
        yield from keys
