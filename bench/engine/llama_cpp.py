"""llama.cpp as a peer: how it is built, and its own benchmark as a contender.

    python bench/engine/llama_cpp.py FOLDER          # builds it there, from the sources that llama-cpp-python brings

Needs cmake, ninja and a C++ compiler; takes half an hour on two cores.
"""

import argparse
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from speed import Contender, Speed, Workload

__all__ = ["build", "llama_cpp_contender"]

_PROGRAMS = ("llama-batched-bench", "llama-server")
_FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
)


def build(folder: Path) -> Path:
    """The folder of its programs. Sources come from the package index, with its own build tools in a folder beside."""
    programs = folder / "build" / "bin"
    if all((programs / name).is_file() for name in _PROGRAMS):
        return programs
    with tempfile.TemporaryDirectory() as scratch:
        download = ["download", "--no-deps", "--no-binary", "llama-cpp-python", "llama-cpp-python", "-d", scratch]
        subprocess.run([sys.executable, "-m", "pip", *download], check=True)
        (archive,) = Path(scratch).glob("llama_cpp_python-*.tar.gz")
        with tarfile.open(archive) as sources:
            sources.extractall(scratch, filter="data")
        (tree,) = Path(scratch).glob("llama_cpp_python-*/vendor/llama.cpp")
        folder.parent.mkdir(parents=True, exist_ok=True)
        tree.rename(folder) if tree.stat().st_dev == folder.parent.stat().st_dev else _copy(tree, folder)
    subprocess.run(["cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja", *_FLAGS], check=True)
    subprocess.run(["ninja", "-C", folder / "build", *_PROGRAMS], check=True)
    return programs


def _copy(tree: Path, folder: Path) -> None:
    subprocess.run(["cp", "-r", tree, folder], check=True)


def llama_cpp_contender(programs: Path, model: Path, threads: int) -> Contender:
    """Its batched benchmark, which also computes all prompts first and then decodes them together."""

    def run(load: Workload) -> Speed:
        context = load.streams * (load.prompt_tokens + load.new_tokens + 32)
        sizes = ("-npp", load.prompt_tokens, "-ntg", load.new_tokens, "-npl", load.streams)
        command = [programs / "llama-batched-bench", "-m", model, "-t", threads, "-c", context, "-b", 2048, "-ub", 512]
        printed = subprocess.run(
            [str(part) for part in (*command, "-fa", "on", *sizes)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        ).stdout
        tables = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines()]
        (cells,) = [cells for cells in tables if len(cells) == 10 and cells[0].isdigit()]
        return Speed(prefill=float(cells[5]), decode=float(cells[7]))

    return Contender("llama.cpp", run)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    print(build(parser.parse_args().folder.resolve()))
