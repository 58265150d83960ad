"""run.yaml -> `Config`. The only door: reads the file, and raises one ConfigError with everything that is wrong."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gateway.config.cross_checks import cross_check
from gateway.config.document import MAX_TEXT_CHARS, parse_document
from gateway.config.faults import ConfigError, Fault, Location, hide_quoted
from gateway.config.prices import PriceRow, read_prices
from gateway.config.redaction import Redactor
from gateway.config.resolve import Resolved, resolve
from gateway.config.secrets import collect_secrets, is_telling
from gateway.config.sections.auth import Auth
from gateway.config.sections.local import LocalProvider
from gateway.config.sections.models import Alias
from gateway.config.sections.providers import RemoteProvider
from gateway.config.sections.reliability import Reliability
from gateway.config.sections.run_file import RunFile
from gateway.config.sections.server import Server
from gateway.config.sections.telemetry import Telemetry
from gateway.config.validation import in_file, validate

__all__ = ["Config", "ProviderConfig", "load_config", "parse_config"]

ProviderConfig = LocalProvider | RemoteProvider
_MAX_FILE_BYTES = 4 * MAX_TEXT_CHARS
"""What is longer is too long in any case."""


@dataclass(frozen=True, slots=True, repr=False)
class Config:
    """A configuration that has passed every check. Nothing in it changes; a reload makes a new one."""

    path: Path
    run: RunFile
    """The file as it was validated, for those who print it."""
    providers: Mapping[str, ProviderConfig]
    """The providers that are on, in the order of the file."""
    off: Mapping[str, str]
    """The providers that are off: name -> why."""
    secrets: frozenset[str]
    """Every value that must never be shown: what `Redactor` takes."""
    substituted: frozenset[Location]
    """Where a value came from a `${...}`; it is printed as a mask."""
    prices: Mapping[str, PriceRow]
    """What `prices.file` holds: by `provider/model`, where `*` stands for any text."""
    line_of: Callable[[Location], int]
    """The line of a place in the file, or of the nearest thing around it."""

    def __repr__(self) -> str:
        return f"Config({str(self.path)!r})"

    @property
    def server(self) -> Server:
        return self.run.server

    @property
    def auth(self) -> Auth | None:
        """None: no key is asked for."""
        return self.run.auth if self.run.auth and self.run.auth.asks else None

    @property
    def models(self) -> Mapping[str, Alias]:
        """Public name -> targets, in the order of the file."""
        return self.run.models

    @property
    def keeps_usage(self) -> bool:
        """Whether rows of usage are kept: where there are keys, a file of prices, or budgets."""
        has_budget = any(alias.budget is not None for alias in self.models.values())
        return self.auth is not None or bool(self.prices) or has_budget

    @property
    def reliability(self) -> Reliability:
        return self.run.reliability

    @property
    def telemetry(self) -> Telemetry:
        return self.run.telemetry


def load_config(path: Path, env: Mapping[str, str], *, provider_types: Collection[str]) -> Config:
    """The configuration in the file `path`. Blocks. Raises ConfigError.

    `env` is where `${V}` is looked up; `provider_types` are the types that the registry of providers knows.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigError(path, [Fault((), 0, "there is no such file")]) from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "not a file name"
        raise ConfigError(path, [Fault((), 0, f"cannot be read: {why}")]) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(path, [Fault((), line, "not UTF-8 text")]) from None
    return parse_config(text, env, provider_types=provider_types, path=path)


def parse_config(
    text: str, env: Mapping[str, str], *, provider_types: Collection[str], path: Path = Path("run.yaml")
) -> Config:
    """The configuration in `text`, as if it stood in the file `path`. Raises ConfigError."""
    root, faults = parse_document(text)
    if root is None:
        raise ConfigError(path, faults)
    folder = path.absolute().parent
    resolved = resolve(root, env, folder)
    run, schema_faults, resolved = validate(resolved, provider_types=provider_types, folder=folder)
    off = _off(resolved)
    unknown = {fault.location for fault in (*resolved.missing, *resolved.malformed)}
    invalid = unknown | {fault.location for fault in schema_faults}
    faults += resolved.malformed
    faults += [fault for fault in resolved.missing if not _belongs(fault, off)]
    faults += schema_faults
    if run is None:
        # What is left without the wrong entries still has to agree with itself, so that all faults are told at once.
        left = Resolved(_without(resolved.value, {at[:2] for at in invalid}))
        run, _, _ = validate(left, provider_types=provider_types, folder=folder)
    prices: Mapping[str, PriceRow] = {}
    if run is not None:
        faults += _contradictions(run, resolved, faults)
        if run.prices is not None:
            at: Location = ("prices", "file")
            prices, price_faults = read_prices(Path(run.prices.file), at, resolved.line(at))
            faults += price_faults
    if faults or run is None:
        redact = Redactor(value for values in resolved.substituted.values() for value in values if is_telling(value))
        raise ConfigError(path, [Fault(f.location, f.line, redact(f.message)) for f in faults])
    off = _off_by_choice(run) | off
    return Config(
        path=path,
        run=run,
        providers=MappingProxyType({name: entry for name, entry in run.providers.items() if name not in off}),
        off=MappingProxyType(off),
        secrets=collect_secrets(run, resolved.substituted),
        substituted=frozenset(resolved.substituted),
        prices=prices,
        line_of=resolved.line,
    )


def _contradictions(run: RunFile, resolved: Resolved, faults: Sequence[Fault]) -> Iterator[Fault]:
    """What the cross-checks find, less what only follows from a fault that is told already."""
    places = {fault.location for fault in faults}
    told = {step for place in places for step in (place[:1], place[:2])}
    names = {section: _names(resolved.value, section) for section in ("providers", "models")}
    for at, message in cross_check(run, provider_names=names["providers"], alias_names=names["models"]):
        if at in places or (at == ("server", "host") and not told.isdisjoint({("auth",), at})):
            continue
        if at[0] == "auth" and ("auth", "teams") in told:
            continue  # who is in none of them may be in one that is told already
        written = _as_written(at, resolved.value)
        hidden = _inside(written, resolved.substituted)
        yield Fault(written, resolved.line(at), hide_quoted(message) if hidden else message)


def _off(resolved: Resolved) -> dict[str, str]:
    """The providers that may be off and miss a value: name -> why."""
    providers = resolved.value.get("providers") if isinstance(resolved.value, Mapping) else None
    off: dict[str, str] = {}
    for fault in resolved.missing:
        if fault.location[0] == "providers" and isinstance(providers, Mapping) and len(fault.location) > 1:
            name = str(fault.location[1])
            entry = providers[name]
            if isinstance(entry, Mapping) and entry.get("enabled") in ("auto", False):
                off.setdefault(name, fault.message)
    return off


def _off_by_choice(run: RunFile) -> dict[str, str]:
    off = {name: "enabled: false" for name, provider in run.providers.items() if provider.enabled is False}
    for name, provider in run.providers.items():
        if provider.enabled == "auto" and isinstance(provider, RemoteProvider) and provider.key_is_empty:
            off[name] = "its api_key is empty"
    return off


def _as_written(location: Location, value: object) -> Location:
    """`location` without what a short form left out; a key that is missing from a mapping stays."""
    written = in_file(location, value)
    for step in written:
        value = value[step]  # type: ignore[index]  # in_file has been there
    return location if isinstance(value, Mapping) and len(location) == len(written) + 1 else written


def _belongs(fault: Fault, off: Mapping[str, str]) -> bool:
    return fault.location[:1] == ("providers",) and fault.location[1:2] != () and fault.location[1] in off


def _inside(location: Location, places: Iterable[Location]) -> bool:
    return any(location[: len(place)] == place for place in places)


def _names(value: object, section: str) -> Collection[str]:
    names = value.get(section) if isinstance(value, Mapping) else None
    return names if isinstance(names, Mapping) else ()


def _without(value: object, places: Collection[Location]) -> object:
    """The file without the entries at `places` (one or two steps deep), and with its version."""
    if not isinstance(value, Mapping):
        return value
    left: dict[str, object] = {"version": 1}
    for key, child in value.items():
        if key == "version" or (key,) in places:
            continue
        if isinstance(child, Mapping):
            child = {name: entry for name, entry in child.items() if (key, name) not in places}
        left[key] = child
    return left
