"""Rules that join sections: names that must exist, names that must differ, and what is unsafe together."""

import re
from collections.abc import Collection, Iterator
from urllib.parse import urlsplit

from adapters.nearest_name import did_you_mean_or_all
from gateway.config.faults import Location
from gateway.config.sections.auth import Account, ClientAccount
from gateway.config.sections.local import LocalProvider
from gateway.config.sections.models import Alias
from gateway.config.sections.providers import RemoteProvider
from gateway.config.sections.run_file import RunFile
from gateway.config.sections.server import Server, is_loopback
from gateway.storage.place import parse_place
from providers.models.facts import priced_types
from providers.remote.addresses import ADDRESSES

__all__ = ["cross_check", "name_as_target"]

_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_ENDPOINT = re.compile(r"(?:/chat/completions|(?<=/v1)/(?:completions|responses|messages|embeddings)|(?<=/v2)/chat)$")
_OLLAMA_ENDPOINT = re.compile(r"/(?:api|v1)(?:/\w+)*$")
"""What people copy with an address, and what is added to it at each call."""

_REDIS_SCHEMES = ("redis://", "rediss://", "unix://")

Finding = tuple[Location, str]


def cross_check(run: RunFile, *, provider_names: Collection[str], alias_names: Collection[str]) -> Iterator[Finding]:
    """Where `run` contradicts itself, and what to say there.

    `provider_names` and `alias_names` are all that the file has, also those that are off or wrong in themselves and
    therefore not in `run`: a reference to one of them is not a second fault.
    """
    yield from _open_door(run)
    yield from _socket_file(run)
    if run.server.unix is None and run.server.port == run.server.admin_port != 0:
        yield (
            ("server", "admin_port"),
            f"{run.server.port} is 'port' already, expected another one, or none for one port",
        )
    yield from _workers(run)
    yield from _keys(run)
    yield from _teams(run)
    yield from _budgets(run)
    if run.storage is not None:
        try:
            parse_place(run.storage.url.get_secret_value())
        except ValueError as error:
            yield ("storage", "url"), str(error)
    if run.shared is not None and not run.shared.url.get_secret_value().startswith(_REDIS_SCHEMES):
        yield ("shared", "url"), "expected redis://HOST:PORT/DATABASE, rediss://... or unix://..."
    yield from _tools(run)
    for name in provider_names:
        if not name or not set(name) <= _NAME_CHARS:
            yield ("providers", name), "a provider's name is made of letters, digits, '.', '_' and '-'"
    for name in alias_names:
        if not name or any(map(str.isspace, name)) or name.count("*") > 1:
            yield ("models", name), "a public name must not be empty, hold blanks, or hold more than one '*'"
        elif "*" in name and name.partition("/")[0] in provider_names and "/" in name.partition("*")[0]:
            provider = name.partition("/")[0]
            why = (
                f"names that begin with '{provider}/' go to the provider '{provider}', so nobody ever asks for this one"
            )
            yield ("models", name), why
    yield from _providers(run)
    for name, alias in run.models.items():
        yield from _targets(run, name, alias, provider_names=provider_names, alias_names=alias_names)


def _open_door(run: RunFile) -> Iterator[Finding]:
    if not run.server.is_loopback and not (run.auth and run.auth.asks):
        why = "other machines can reach this address, so it needs keys under 'auth', or the host 127.0.0.1"
        yield ("server", "host"), why


def _socket_file(run: RunFile) -> Iterator[Finding]:
    if run.server.unix is not None and run.server.tls is not None and run.server.admin_port is None:
        yield ("server", "tls"), "a socket file is served without TLS, and there is no port"


def _workers(run: RunFile) -> Iterator[Finding]:
    if run.server.workers == 1:
        return
    limited = any(account.is_limited for _, account in _accounts(run))
    limited = limited or any(alias.limits or alias.budget for alias in run.models.values())
    if run.shared is None and limited:
        yield ("server", "workers"), "several processes count limits and budgets together only with 'shared'"


def _accounts(run: RunFile) -> Iterator[tuple[Location, Account]]:
    """Whoever may use something, and where that stands."""
    if run.auth is None:
        return
    for index, key in enumerate(run.auth.keys):
        yield ("auth", "keys", index), key
    for name, team in run.auth.teams.items():
        yield ("auth", "teams", name), team
    if run.auth.jwt is not None:
        yield ("auth", "jwt"), run.auth.jwt


def _teams(run: RunFile) -> Iterator[Finding]:
    teams = run.auth.teams if run.auth is not None else {}
    for name in teams:
        if not name or not set(name) <= _NAME_CHARS:
            yield ("auth", "teams", name), "a team's name is made of letters, digits, '.', '_' and '-'"
    if run.auth is not None and run.auth.jwt is not None and run.auth.jwt.team_claim is not None and not teams:
        yield ("auth", "jwt", "team_claim"), "there are no teams that a token could name, expected some in 'auth.teams'"
    for at, account in _accounts(run):
        team = account.team if isinstance(account, ClientAccount) else None
        if team is not None and team not in teams:
            yield (*at, "team"), f"'auth.teams' has no '{team}'{did_you_mean_or_all(team, sorted(teams))}"


def _keys(run: RunFile) -> Iterator[Finding]:
    ids: dict[str, int] = {}
    secrets: dict[str, int] = {}
    for index, key in enumerate(run.auth.keys if run.auth else ()):
        at: Location = ("auth", "keys", index)
        if key.id in ids:
            yield (*at, "id"), f"duplicate id '{key.id}', first given in auth.keys[{ids[key.id]}]"
        ids.setdefault(key.id, index)
        secret = key.secret.get_secret_value()
        if not secret:
            yield (*at, "secret"), "expected text that is not empty"
        elif secret in secrets:
            yield (*at, "secret"), f"the same secret as auth.keys[{secrets[secret]}]"
        secrets.setdefault(secret, index)


def _budgets(run: RunFile) -> Iterator[Finding]:
    """Money can only be counted where it is known what tokens cost: by a file, or by what makers publish."""
    if run.prices is not None or not priced_types().isdisjoint([one.type for one in run.providers.values()]):
        return
    places: list[Location] = []
    for at, account in _accounts(run):
        places += [(*at, "budget")] if account.budget else []
        places += [(*at, "per_user", "budget")] if account.per_user and account.per_user.budget else []
        places += [(*at, "per_model", name, "budget") for name, rules in account.per_model.items() if rules.budget]
    places += [("models", name, "budget") for name, alias in run.models.items() if alias.budget]
    for place in places:
        yield place, "a budget needs to know what tokens cost, which nobody publishes here: name a file under 'prices'"


def _tools(run: RunFile) -> Iterator[Finding]:
    tools = run.tools
    if tools is None:
        return
    groups: dict[str, Collection[str]] = {"mcp": tools.mcp.keys(), "functions": tools.functions.keys()}
    for group, names in groups.items():
        for name in names:
            if not name or not set(name) <= _NAME_CHARS:
                yield ("tools", group, name), "a name is made of letters, digits, '.', '_' and '-'"
    for name in groups["functions"]:
        if name in groups["mcp"]:
            yield ("tools", "functions", name), f"'{name}' is a name under 'mcp' already, expected each name once"
    for key in ("web_search", "file_search", "code_interpreter"):
        use = getattr(tools, key)
        if use is not None:
            group, _, rest = use.partition(":")
            server = rest.partition("/")[0]
            if server not in groups[group]:
                yield ("tools", key), f"'{group}' has no '{server}'{did_you_mean_or_all(server, sorted(groups[group]))}"


def _providers(run: RunFile) -> Iterator[Finding]:
    locals_ = [name for name, provider in run.providers.items() if isinstance(provider, LocalProvider)]
    for name in locals_[1:]:
        yield ("providers", name), f"a second local provider, expected one; put its models under '{locals_[0]}'"
    for name, provider in run.providers.items():
        if isinstance(provider, LocalProvider):
            if not provider.models:
                yield ("providers", name), "names no model, expected 'model' or 'models'"
            for model in provider.models:
                if not model or any(char.isspace() for char in model):
                    yield ("providers", name, "models", model), "a model's name must not be empty or hold blanks"
        elif provider.enabled is True:
            yield from _remote(name, provider, run.server)


def _remote(name: str, provider: RemoteProvider, server: Server) -> Iterator[Finding]:
    address = provider.base_url or ADDRESSES.get(provider.type, "")
    if address is None:
        yield ("providers", name, "base_url"), f"the key is missing, a provider of type '{provider.type}' needs it"
    elif address and _is_own(address, server):
        why = f"'{address}' is the gateway's own address; name that of the provider, or change server.port"
        yield ("providers", name, "base_url"), why
    elif found := (_OLLAMA_ENDPOINT if provider.type == "ollama" else _ENDPOINT).search(address or ""):
        yield ("providers", name, "base_url"), f"'{found[0]}' is no part of the address, leave it out"
    if provider.key_is_empty:
        why = "the key is empty; leave it out if none is needed, or switch the provider off with enabled: auto"
        yield ("providers", name, "api_key"), why


def _is_own(address: str, server: Server) -> bool:
    """Whether a call to the address comes in at the gateway's own port."""
    parts = urlsplit(address)
    port, host = parts.port or (443 if parts.scheme == "https" else 80), parts.hostname or ""
    if port not in ((server.port, server.admin_port) if server.unix is None else (server.admin_port,)):
        return False
    if host == server.host.lower():
        return True
    # A name stands for any address of this machine, and such a listener for all of them.
    is_general = "localhost" in (host, server.host.lower()) or server.host in ("0.0.0.0", "::")
    return is_general and is_loopback(host) and (server.is_loopback or server.host in ("0.0.0.0", "::"))


def _targets(
    run: RunFile, name: str, alias: Alias, *, provider_names: Collection[str], alias_names: Collection[str]
) -> Iterator[Finding]:
    at: Location = ("models", name)
    uses: list[tuple[Location, str]] = [((*at, "targets", i, "use"), t.use) for i, t in enumerate(alias.targets)]
    uses += [((*at, "on_failure", i), use) for i, use in enumerate(alias.on_failure)]
    seen: set[str] = set()
    for place, use in uses:
        if use in seen:
            yield place, f"'{use}' stands here twice, expected each target once"
        seen.add(use)
    for key, more in (
        ("on_context_overflow", alias.on_context_overflow),
        ("on_content_filter", alias.on_content_filter),
    ):
        uses += [((*at, key, i), use) for i, use in enumerate(more)]
    if alias.shadow:
        uses.append(((*at, "shadow", "use"), alias.shadow.use))
    for place, use in uses:
        provider, model = use.split("/", 1)
        if model.count("*") > name.count("*"):
            why = (
                "expected at most one '*'" if "*" in name else f"a '*' needs one in the public name '{name}' to fill it"
            )
            yield place, f"'{use}': {why}"
        elif use in alias_names and "*" not in use:
            yield place, name_as_target(use)
        elif provider not in provider_names:
            yield place, f"no provider is named '{provider}'{did_you_mean_or_all(provider, sorted(provider_names))}"
        else:
            yield from _local_model(run, place, provider, model)


def name_as_target(name: str) -> str:
    """What is wrong where a public name stands as a target of another one."""
    return f"'{name}' is itself a name under 'models', expected provider/model"


def _local_model(run: RunFile, place: Location, provider_name: str, model: str) -> Iterator[Finding]:
    provider = run.providers.get(provider_name)
    if not isinstance(provider, LocalProvider) or model in provider.models or "*" in model:
        return
    base, _, adapter = model.rpartition(":")
    if base in provider.models and adapter in provider.models[base].adapters:
        return
    yield place, f"'{provider_name}' has no model '{model}'{did_you_mean_or_all(model, sorted(provider.models))}"
