"""Builds the CPU kernels, once for each instruction set of this machine's kind; everything else is in pyproject.toml.

They are plain C libraries without Python in them, loaded through ctypes. All are optional: where there is no compiler,
the package installs without them and the engine runs on torch.
"""

import os
import platform
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = Path("local_engine/kernels/cpu/src")
FLAGS = [
    "-std=c++17",
    "-O3",
    "-g0",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-Wno-maybe-uninitialized",
    "-Wno-uninitialized",
]
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni"]
INSTRUCTION_SETS = {
    "x86_64": {
        "portable": [],
        "avx2": AVX2,
        "avx2vnni": [*AVX2, "-mavxvnni"],
        "avx512": AVX512,
        "avx512bf16": [*AVX512, "-mavx512bf16"],
    },
    "aarch64": {"portable": [], "neon": ["-march=armv8.2-a+dotprod"]},
}
MACHINE = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())


class BuildLibraries(build_ext):
    """Compiles as many libraries at once as there are cores, the same sources into a folder of objects for each."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name))
        inputs = [Path(name) for name in (*ext.sources, *ext.depends, __file__)]
        if (
            target.is_file()
            and not self.force
            and target.stat().st_mtime > max(path.stat().st_mtime for path in inputs)
        ):
            return
        folder = str(Path(self.build_temp) / ext.name)
        objects = self.compiler.compile(ext.sources, output_dir=folder, extra_postargs=ext.extra_compile_args)
        self.compiler.link_shared_object(objects, str(target), extra_postargs=ext.extra_link_args, target_lang="c++")


setup(
    ext_modules=[
        Extension(
            f"local_engine.kernels.cpu._kernels_{name}",
            sources=[str(path) for path in sorted(SOURCES.glob("*.cpp"))],
            depends=[str(path) for path in sorted(SOURCES.glob("*.h"))],
            extra_compile_args=[*FLAGS, *flags],
            extra_link_args=["-pthread"],
            language="c++",
            optional=True,
        )
        for name, flags in INSTRUCTION_SETS.get(MACHINE, {"portable": []}).items()
        if sys.platform != "win32"
    ],
    cmdclass={"build_ext": BuildLibraries},
)
