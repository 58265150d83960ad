"""`gateway check`: is run.yaml right, and what would run? Calls no provider and loads no model."""

import argparse
import sys
from ctypes.util import find_library
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from gateway.cli.configuration import load
from gateway.cli.failure import CommandFailed
from gateway.cli.table import print_table, render_bytes

if TYPE_CHECKING:
    from gateway.config import Config
    from gateway.config.sections.local import LocalProvider

__all__ = ["EXAMPLE", "SUMMARY", "add_arguments", "run"]

SUMMARY = "validate run.yaml and report what would run"
EXAMPLE = "gateway check --config run.yaml"


class _Problem(NamedTuple):
    """`at` is where it stands, `line` of the file."""

    line: int
    at: str
    why: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing but the configuration."""


def run(arguments: argparse.Namespace) -> int:
    config = load(arguments.config)
    problems: list[_Problem] = []
    print_table("Providers", ("name", "type", "state", "address"), _providers(config))
    print_table("Local models", ("name", "source", "state", "size", "load"), _local_models(config, problems))
    print_table("Models", ("name", "targets", "then, on failure"), _aliases(config, problems))
    if not problems and any(entry.type == "local" for entry in config.run.providers.values()):
        for line in _gpu_kernels(config):
            print(line)
        print(_cpu_kernels())
        for line in _shares(config, problems):
            print(line)
    if problems:
        raise CommandFailed("\n".join(f"{arguments.config}:{line}: {at}: {why}" for line, at, why in sorted(problems)))
    for line in _doubts(config):
        print(f"gateway: {line}", file=sys.stderr)
    print(f"{arguments.config} is valid")
    return 0


def _providers(config: "Config") -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, entry in config.run.providers.items():
        state = f"off: {config.off[name]}" if name in config.off else "on"
        rows.append((name, entry.type, state, _address(config, name)))
    known = {row[0] for row in rows}
    rows += [(name, "", f"off: {why}", "") for name, why in config.off.items() if name not in known]
    return rows


def _address(config: "Config", name: str) -> str:
    from gateway.config.sections.local import LocalProvider
    from gateway.config.sections.providers import GeminiProvider
    from providers.remote.addresses import ADDRESSES

    entry = config.run.providers[name]
    if isinstance(entry, LocalProvider):
        return "in this process"
    if ("providers", name, "base_url") in config.substituted:
        return "***"
    own = "" if isinstance(entry, GeminiProvider) and entry.project else ADDRESSES.get(entry.type)
    return entry.base_url or own or "the vendor's own"


def _doubts(config: "Config") -> list[str]:
    """What may be meant as it stands, but mostly is not."""
    from gateway.config.faults import render_location
    from gateway.config.sections.local import LocalProvider
    from providers.remote.addresses import usual_path

    lines: list[str] = []
    for name, entry in config.providers.items():
        address = None if isinstance(entry, LocalProvider) else entry.base_url
        if address and not urlsplit(address).path and (path := usual_path(entry.type)):
            at = ("providers", name, "base_url")
            place = f"{config.path}:{config.line_of(at)}: {render_location(at)}"
            lines.append(f"{place}: the address has no path, but APIs of this type mostly lie below '{path}'")
    return lines


def _local_models(config: "Config", problems: list[_Problem]) -> list[tuple[str, ...]]:
    from gateway.config.sections.local import LocalProvider
    from providers.registry import missing_extra

    rows: list[tuple[str, ...]] = []
    for name, provider in config.providers.items():
        if isinstance(provider, LocalProvider):
            if missing := missing_extra("local"):
                problems.append(_Problem(config.line_of(("providers", name)), f"providers.{name}", missing))
                continue
            rows += _models_of(config, name, problems)
    return rows


def _gpu_kernels(config: "Config") -> list[str]:
    """What would compute on this machine's GPU, if a model is to run there."""
    from gateway.config.sections.local import LocalProvider

    wanted = {entry.device for entry in config.providers.values() if isinstance(entry, LocalProvider)}
    # Without the driver's library there is no GPU, and torch need not be asked, which takes a second.
    if find_library("cuda") is None:
        return ["GPU kernels: no GPU is found, so device cuda cannot be used"] if "cuda" in wanted else []
    if not {"auto", "cuda"} & wanted:
        return []
    from local_engine.device import gpu_kernels

    return [f"GPU kernels: {gpu_kernels()}"]


def _shares(config: "Config", problems: list[_Problem]) -> list[str]:
    """What each process would have of the models that several GPUs are to share, of those that are on this machine."""
    from gateway.config.sections.local import LocalProvider
    from local_engine.errors import EngineError
    from providers.local.model_source import cached

    lines: list[str] = []
    for provider_name, provider in config.providers.items():
        if not isinstance(provider, LocalProvider) or provider.tensor_parallel == 1:
            continue
        for name, model in provider.models.items():
            path, place = cached(model.source or name), f"{provider_name}.models.{name}"
            try:
                lines += [f"{place}: {_share(path, provider)}"] if path is not None else []
            except EngineError as error:
                line = config.line_of(("providers", provider_name, "models", name))
                problems.append(_Problem(line, f"providers.{place}", str(error)))
    return lines


def _share(path: Path, provider: "LocalProvider") -> str:
    """Raises EngineError."""
    from local_engine.config import EngineConfig
    from local_engine.device import pick_device
    from local_engine.loading.encoder import model_kind
    from local_engine.parallel.load import describe_shares

    if model_kind(path) != "generation":
        return "in one process, since it does not generate"
    engine = EngineConfig(device=pick_device(provider.device), tensor_parallel=provider.tensor_parallel)
    return describe_shares(path, engine)


def _cpu_kernels() -> str:
    """What computes on this machine's CPU, without loading a model."""
    from local_engine.kernels.cpu.library import best_library

    library = best_library()
    if library is None:
        return "CPU kernels: not built, torch computes; install the package where a C++ compiler is to have them"
    return f"CPU kernels: {library.instruction_set}"


def _models_of(config: "Config", provider_name: str, problems: list[_Problem]) -> list[tuple[str, ...]]:
    from gateway.config.sections.local import LocalProvider
    from providers.local.model_source import BuiltinModel, FetchError, cached, resolve

    rows: list[tuple[str, ...]] = []
    provider = config.providers[provider_name]
    assert isinstance(provider, LocalProvider)
    for name, model in provider.models.items():
        line, at = (
            config.line_of(("providers", provider_name, "models", name)),
            f"providers.{provider_name}.models.{name}",
        )
        source = model.source or name
        state, size = "to be fetched", ""
        try:
            found = resolve(source)
            if isinstance(found, BuiltinModel):
                size = render_bytes(found.size_bytes)
            path = cached(source)
            if path is not None:
                state, size = "on this machine", render_bytes(_size_bytes(path))
        except FetchError as error:
            state = "not to be had"
            problems.append(_Problem(line, at, str(error)))
        if model.chat_template is not None and not Path(model.chat_template).is_file():
            problems.append(_Problem(line, f"{at}.chat_template", f"no file {model.chat_template}"))
        rows.append((name, source, state, size, model.load))
    return rows


def _size_bytes(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _aliases(config: "Config", problems: list[_Problem]) -> list[tuple[str, ...]]:
    from gateway.routing.defaults import Defaults, DefaultsError

    for name, alias in config.models.items():
        try:
            Defaults(alias.defaults)
        except DefaultsError as error:
            at, _, why = f"models.{name}.{error}".partition(": ")
            problems.append(_Problem(config.line_of(("models", name, "defaults")), at, why))
    return [
        (
            name,
            ", ".join(_with_state(config, target.use) for target in alias.targets),
            ", ".join(_with_state(config, use) for use in alias.on_failure),
        )
        for name, alias in config.models.items()
    ]


def _with_state(config: "Config", use: str) -> str:
    return f"{use} (off)" if use.split("/", 1)[0] in config.off else use
