"""LoRA adapters that come and go while a local model serves, by vLLM's endpoints, in this process and in another."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.config import parse_config
from gateway.engine_process.host import Host
from gateway.engine_process.proxy import EngineProxy
from gateway.server.provider_building import build_provider_of
from tests.cases.tiny_model import write_adapter, write_model
from tests.gateway.server.admin.test_keys import ADMIN, AUTH
from tests.gateway.server.running import Running, error_of, running

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"


@asynccontextmanager
async def serving(folder: Path, *names: str, apart: bool = False) -> AsyncIterator[Running]:
    """A gateway with local models of these names, `apart` in what stands for another process. The folder has an adapter
    `a`."""
    write_adapter(folder / "a", seed=1)
    source = write_model(folder / "model")
    models = ", ".join(f"{name}: {{source: '{source}'}}" for name in names)
    local = f"{{type: local, device: cpu, threads: 1, kv_cache: {{memory: 1MiB}}, models: {{{models}}}}}"
    config = parse_config(f"version: 1\nproviders: {{local: {local}}}\n{AUTH}", {}, provider_types=["local"])
    provider = build_provider_of(config, "local", None)
    if not apart:
        async with running(provider, config=config) as gateway:
            yield gateway
        return
    faults: list[BaseException] = []
    host = Host(provider, faults.append)
    await host.start(folder / "s")
    try:
        async with running(EngineProxy("local", folder / "s", first_token_s=30), config=config) as gateway:
            yield gateway
    finally:
        await host.aclose()
    assert faults == []


async def tell(gateway: Running, path: str, **body: object) -> str:
    async with gateway.post(body, path, headers=ADMIN) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.text()


async def ask(gateway: Running, model: str) -> int:
    body = {"model": model, "prompt": "hi", "max_tokens": 2}
    async with gateway.post(body, "/v1/completions", headers=ADMIN) as answer:
        await answer.read()
        return answer.status


@pytest.mark.parametrize("apart", [False, True])
async def test_an_adapter_comes_and_goes_while_the_model_serves(tmp_path: Path, apart: bool) -> None:
    async with serving(tmp_path, "m", apart=apart) as gateway:
        assert await ask(gateway, "local/m:a") == 404
        told = await tell(gateway, LOAD, lora_name="a", lora_path=str(tmp_path / "a"))
        assert told == "Success: LoRA adapter 'm:a' added successfully."
        assert [await ask(gateway, name) for name in ("local/m:a", "m:a", "m")] == [200, 200, 200]
        await tell(gateway, UNLOAD, lora_name="local/m:a")
        assert await ask(gateway, "local/m:a") == 404


async def test_where_there_are_several_models_an_adapter_is_named_with_its_own(tmp_path: Path) -> None:
    async with serving(tmp_path, "m", "n") as gateway:
        async with gateway.post({"lora_name": "a", "lora_path": "a"}, LOAD, headers=ADMIN) as answer:
            assert answer.status == 400
            assert "expected MODEL:NAME" in str((await error_of(answer))["message"])
        await tell(gateway, LOAD, lora_name="n:a", lora_path=str(tmp_path / "a"))
        assert [await ask(gateway, name) for name in ("n:a", "m:a")] == [200, 404]


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        (LOAD, {"lora_name": "m:a", "lora_path": "/nowhere"}, 400, "adapter"),
        (LOAD, {"lora_name": "m:a"}, 400, "lora_path"),
        (LOAD, {"lora_name": "m:a", "lora_path": "/nowhere", "load_inplace": True}, 400, "load_inplace"),
        (LOAD, {"lora_name": "other:a", "lora_path": "/nowhere"}, 404, "lora_name"),
        (UNLOAD, {"lora_name": "m:a", "lora_int_id": None}, 404, "model"),
    ],
)
async def test_what_cannot_be_done_is_named(
    tmp_path: Path, path: str, body: dict[str, object], status: int, param: str
) -> None:
    async with serving(tmp_path, "m") as gateway, gateway.post(body, path, headers=ADMIN) as answer:
        assert (answer.status, (await error_of(answer))["param"]) == (status, param)


@pytest.mark.parametrize("path", [LOAD, UNLOAD])
async def test_only_admins_may_change_adapters(tmp_path: Path, path: str) -> None:
    plain = {"Authorization": "Bearer secret-of-plain"}
    async with serving(tmp_path, "m") as gateway, gateway.post({"lora_name": "a"}, path, headers=plain) as answer:
        assert answer.status == 403
