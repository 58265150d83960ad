"""`gateway check`: is run.yaml right, and what would run? Loads no model, and calls providers with --probe alone."""

import argparse
import sys
from collections.abc import Iterator
from ctypes.util import find_library
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gateway.cli.configuration import load, warn_of_no_provider
from gateway.cli.failure import CommandFailed
from gateway.cli.table import print_table, render_bytes

if TYPE_CHECKING:
    from gateway.config import Config, Fault
    from gateway.config.faults import Location
    from gateway.config.sections.local import LocalModel, LocalProvider

__all__ = ["EXAMPLE", "SUMMARY", "add_arguments", "run"]

SUMMARY = "validate run.yaml and report what would run"
EXAMPLE = "gateway check run.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="the configuration, as with --config")
    parser.add_argument(
        "--probe", action="store_true", help="ask each provider for its models, which shows whether it takes its key"
    )


def run(arguments: argparse.Namespace) -> int:
    import asyncio

    from gateway.cli.trial import find_faults
    from gateway.config import ConfigError

    config = load(arguments.file or arguments.config)
    problems: list[Fault] = []
    print_table("Providers", ("name", "type", "state", "address"), _providers(config))
    print_table("Local models", ("name", "source", "state", "size", "load"), _local_models(config, problems))
    print_table("Models", ("name", "targets", "then, on failure"), _aliases(config, problems))
    if not problems and any(entry.type == "local" for entry in config.run.providers.values()):
        for line in _gpu_kernels(config):
            print(line)
        print(_cpu_kernels())
        for line in _shares(config, problems):
            print(line)
    problems = problems or asyncio.run(find_faults(config))
    if arguments.probe and not problems:
        problems += asyncio.run(_probe(config))
    if problems:
        raise CommandFailed(str(ConfigError(config.path, problems)))
    warn_of_no_provider(config)
    for line in _doubts(config):
        print(f"gateway: {line}", file=sys.stderr)
    print(f"{config.path} is valid")
    return 0


async def _probe(config: "Config") -> list["Fault"]:
    """What keeps providers from answering. Says what they answer."""
    from gateway.cli.provider_probe import probe_providers, unlisted
    from gateway.config import ConfigError

    probes = await probe_providers(config)
    answers = [
        (name, str(len(probe.models)), f"{probe.took_s * 1000:.0f} ms")
        for name, probe in probes.items()
        if probe.fault is None
    ]
    print_table("Answers", ("name", "models", "after"), answers)
    if doubts := unlisted(config, probes):
        for line in ConfigError(config.path, doubts).lines:
            print(f"gateway: {line}", file=sys.stderr)
    return [probe.fault for probe in probes.values() if probe.fault is not None]


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


def _local_models(config: "Config", problems: list["Fault"]) -> list[tuple[str, ...]]:
    from gateway.config.sections.local import LocalProvider
    from providers.registry import missing_extra

    rows: list[tuple[str, ...]] = []
    for name, provider in config.providers.items():
        if isinstance(provider, LocalProvider):
            if missing := missing_extra("local"):
                problems.append(_fault(config, ("providers", name), missing))
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


def _shares(config: "Config", problems: list["Fault"]) -> list[str]:
    """What each process would have of the models that several GPUs are to share, of those that are on this machine."""
    from gateway.config.sections.local import LocalProvider
    from local_engine.errors import EngineError
    from providers.local.model_source import cached

    lines: list[str] = []
    for provider_name, provider in config.providers.items():
        if not isinstance(provider, LocalProvider) or provider.tensor_parallel == 1:
            continue
        for name, model in provider.models.items():
            path = cached(model.source or name)
            try:
                lines += [f"{provider_name}.models.{name}: {_share(path, provider)}"] if path is not None else []
            except EngineError as error:
                problems.append(_fault(config, ("providers", provider_name, "models", name), str(error)))
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


def _models_of(config: "Config", provider_name: str, problems: list["Fault"]) -> list[tuple[str, ...]]:
    from gateway.config.sections.local import LocalProvider
    from providers.local.model_source import BuiltinModel, FetchError, cached, resolve

    rows: list[tuple[str, ...]] = []
    provider = config.providers[provider_name]
    assert isinstance(provider, LocalProvider)
    for name, model in provider.models.items():
        at = ("providers", provider_name, "models", name)
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
            state = "not found"
            problems.append(_fault(config, at, str(error)))
        problems += [_fault(config, (*at, *steps), why) for steps, why in _missing(model)]
        rows.append((name, source, state, size, model.load))
    return rows


def _missing(model: "LocalModel") -> Iterator[tuple["Location", str]]:
    """What a model needs beside itself and is not there: the place below it, and what to say."""
    from providers.local.model_source import FetchError, resolve

    if model.chat_template is not None and not Path(model.chat_template).is_file():
        yield ("chat_template",), f"no file {model.chat_template}"
    for name, path in model.adapters.items():
        if not Path(path).exists():
            yield ("adapters", name), f"no file or folder {path}"
    sources: dict[Location, str | None] = {("mmproj",): model.mmproj}
    if model.speculative is not None:
        sources["speculative", "model"] = model.speculative.model
    for steps, source in sources.items():
        try:
            if source is not None:
                resolve(source)
        except FetchError as error:
            yield steps, str(error)


def _size_bytes(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _aliases(config: "Config", problems: list["Fault"]) -> list[tuple[str, ...]]:
    from gateway.routing.defaults import Defaults, DefaultsError

    for name, alias in config.models.items():
        try:
            Defaults(alias.defaults)
        except DefaultsError as error:
            field, _, why = str(error).removeprefix("defaults.").partition(": ")
            problems.append(_fault(config, ("models", name, "defaults", field), why))
    return [
        (
            name,
            ", ".join(_with_state(config, target.use) for target in alias.targets),
            ", ".join(_with_state(config, use) for use in alias.on_failure),
        )
        for name, alias in config.models.items()
    ]


def _fault(config: "Config", at: "Location", why: str) -> "Fault":
    from gateway.config import Fault

    return Fault(at, config.line_of(at), why)


def _with_state(config: "Config", use: str) -> str:
    return f"{use} (off)" if use.split("/", 1)[0] in config.off else use
