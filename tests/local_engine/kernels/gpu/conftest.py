"""Triton has wheels for Linux only: elsewhere these tests are left out."""

from importlib.util import find_spec

collect_ignore_glob = ["test_*.py"] if find_spec("triton") is None else []
