"""One tiny model in both file formats, loaded once a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from local_engine.config import EngineConfig
from local_engine.loading.load import LoadedModel, load_model
from tests.local_engine.tiny_models import Oracle, tiny_oracle, write_gguf, write_safetensors


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Models of a few kilobytes gain nothing from threads, and threads wait long for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    return tiny_oracle()


@pytest.fixture(scope="session")
def tiny_folder(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_safetensors(oracle, tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def tiny_gguf(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(oracle, tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny_model(tiny_folder: Path) -> LoadedModel:
    return load_model(tiny_folder, EngineConfig())
