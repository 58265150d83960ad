"""POST /v1/load_lora_adapter and /v1/unload_lora_adapter: LoRA adapters of local models while they serve.

As vLLM has them (its LoRA API, 0.15, read 2026-11), but for the name: `MODEL:NAME`, which is what clients ask for,
since many models are served here; `NAME` alone where there is one local model.
"""

from collections.abc import Collection, Mapping
from typing import Literal, TypeVar

from pydantic import Field

from adapters.canonical.errors import InvalidRequest, ModelNotFound
from gateway.config.posted import parse_posted
from gateway.config.sections.section import Section, Text
from gateway.http.answer import Answer, Reply
from gateway.server.admin.routes import AdminTable
from gateway.server.body import BodyReader
from gateway.server.exchange import Exchange
from providers.abilities import AdapterFolder, AdapterHost, AdapterName
from providers.base import Provider

__all__ = ["AdminAdapters"]


class _Named(Section):
    lora_name: Text = Field(description="`MODEL:NAME`, or `PROVIDER/MODEL:NAME`.")


class _Load(_Named):
    lora_path: Text = Field(description="A folder on the gateway's machine, in the form that peft saves.")
    load_inplace: Literal[False] = Field(default=False, description="An adapter has to be unloaded first.")


class _Unload(_Named):
    lora_int_id: int | None = Field(default=None, description="Of vLLM's own books; says nothing here.")


N = TypeVar("N", bound=_Named)


class AdminAdapters:
    """`local` are the models of this machine, by provider and name."""

    def __init__(
        self, providers: Mapping[str, Provider], local: Collection[tuple[str, str]], bodies: BodyReader
    ) -> None:
        hosts = {name: provider for name, provider in providers.items() if isinstance(provider, AdapterHost)}
        self._models = {(name, model): hosts[name] for name, model in local if name in hosts}
        self._bodies = bodies
        self.table: AdminTable = {
            "/v1/load_lora_adapter": {"POST": self._load},
            "/v1/unload_lora_adapter": {"POST": self._unload},
        }

    async def _load(self, exchange: Exchange) -> Reply:
        asked = await self._asked(exchange, _Load)
        host, adapter = self._find(asked.lora_name)
        await host.load_adapter(AdapterFolder(adapter.model, adapter.name, asked.lora_path))
        return _done(exchange, adapter, "added")

    async def _unload(self, exchange: Exchange) -> Reply:
        host, adapter = self._find((await self._asked(exchange, _Unload)).lora_name)
        await host.unload_adapter(adapter)
        return _done(exchange, adapter, "removed")

    async def _asked(self, exchange: Exchange, kind: type[N]) -> N:
        body = await exchange.read(self._bodies)
        return parse_posted(kind, body)

    def _find(self, lora_name: str) -> tuple[AdapterHost, AdapterName]:
        base, _, name = lora_name.rpartition(":")
        found = [place for place in self._models if not base or base in (place[1], "/".join(place))]
        if len(found) == 1:
            return self._models[found[0]], AdapterName(found[0][1], name)
        if base or not found:
            raise ModelNotFound.at("lora_name", f"there is no local model '{base or name}'")
        raise InvalidRequest.at("lora_name", "expected MODEL:NAME, since there are several local models")


def _done(exchange: Exchange, adapter: AdapterName, what: str) -> Answer:
    text = f"Success: LoRA adapter '{adapter.model}:{adapter.name}' {what} successfully."
    return exchange.answer(text.encode(), {"Content-Type": "text/plain; charset=utf-8"})
