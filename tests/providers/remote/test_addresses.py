import pytest

from providers.base import ProviderSettings
from providers.registry import build, provider_types
from providers.remote.addresses import ADDRESSES


@pytest.mark.parametrize("type_name", sorted(name for name, address in ADDRESSES.items() if address is None))
async def test_a_type_without_an_address_is_not_built_without_one(type_name: str) -> None:
    with pytest.raises(ValueError, match=r"providers\.there\.base_url: required"):
        build(ProviderSettings(name="there", type=type_name))


@pytest.mark.parametrize("type_name", sorted(name for name, address in ADDRESSES.items() if address is not None))
async def test_a_type_with_an_address_is_built_without_one(type_name: str) -> None:
    await build(ProviderSettings(name="there", type=type_name)).aclose()


def test_only_types_that_find_their_address_out_have_none() -> None:
    assert provider_types() - ADDRESSES.keys() == {"bedrock", "local"}
