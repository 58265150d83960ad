"""A model's name with Google's collection before it and without is the same model."""

import pytest

from adapters.canonical.embedding import EmbeddingRequest
from adapters.canonical.errors import ModelNotFound
from adapters.gemini.embeddings.upstream import embedding_path
from adapters.gemini.model_names import model_address, model_resource


@pytest.mark.parametrize(
    ("model", "resource", "address"),
    [
        ("gemini-3-pro", "models/gemini-3-pro", "/models/gemini-3-pro"),
        ("models/gemini-3-pro", "models/gemini-3-pro", "/models/gemini-3-pro"),
        ("tuned/a model?", "models/tuned/a model?", "/models/tuned/a%20model%3F"),
    ],
)
def test_a_name_has_its_collection_once(model: str, resource: str, address: str) -> None:
    assert model_resource(model) == resource
    assert model_address(model) == address


def test_a_name_behind_the_collection_is_no_way_to_another_path() -> None:
    with pytest.raises(ModelNotFound):
        model_address("models/../files")


def test_an_embedding_goes_to_the_same_place() -> None:
    asked = EmbeddingRequest(model="models/gemini-embedding-001", dialect="openai.embeddings", inputs=("a", "b"))
    assert embedding_path(asked, vertex=False) == "/models/gemini-embedding-001:batchEmbedContents"
