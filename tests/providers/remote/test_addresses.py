import pytest

from providers.base import ProviderSettings
from providers.registry import build, provider_types
from providers.remote.addresses import ADDRESSES, usual_path


@pytest.mark.parametrize("type_name", sorted(name for name, address in ADDRESSES.items() if address is None))
async def test_a_type_without_an_address_is_not_built_without_one(type_name: str) -> None:
    with pytest.raises(ValueError, match=r"providers\.there\.base_url: required"):
        build(ProviderSettings(name="there", type=type_name))


@pytest.mark.parametrize("type_name", sorted(name for name, address in ADDRESSES.items() if address is not None))
async def test_a_type_with_an_address_is_built_without_one(type_name: str) -> None:
    await build(ProviderSettings(name="there", type=type_name)).aclose()


def test_only_types_that_find_their_address_out_have_none() -> None:
    assert provider_types() - ADDRESSES.keys() == {"bedrock", "local"}


@pytest.mark.parametrize(
    ("type_name", "path"),
    [("openai-compatible", "/v1"), ("azure", "/openai/v1"), ("vllm", "/v1"), ("ollama", ""), ("bedrock", "")],
)
def test_a_type_knows_below_what_its_apis_lie(type_name: str, path: str) -> None:
    assert usual_path(type_name) == path
