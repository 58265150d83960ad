from pathlib import Path

import pytest

from gateway.storage.place import FilePlace, MemoryPlace, ServerPlace, parse_place
from gateway.storage.seal_key import kept_secret


def test_urls_name_places() -> None:
    assert parse_place("memory") == MemoryPlace()
    assert parse_place("sqlite:///gateway.db") == FilePlace(Path("gateway.db"))
    assert parse_place("sqlite:////var/gateway.db") == FilePlace(Path("/var/gateway.db"))
    for start in ("postgres", "postgresql"):
        assert parse_place(f"{start}://a:b@h/d") == ServerPlace("postgresql+psycopg://a:b@h/d")
    assert parse_place(None, {"XDG_DATA_HOME": "/data"}) == FilePlace(Path("/data/llm-gateway/gateway.db"))
    assert parse_place(None, {"LLM_GATEWAY_DATA": "/own"}) == FilePlace(Path("/own/gateway.db"))


@pytest.mark.parametrize("url", ["", "mysql://a/b", "sqlite://", "sqlite:///", "/var/gateway.db", "postgresql://"])
def test_anything_else_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected sqlite"):
        parse_place(url)


def test_the_seal_key_is_made_once_and_kept_beside_the_file(tmp_path: Path) -> None:
    place = FilePlace(tmp_path / "folder" / "gateway.db")
    secret = kept_secret(place)
    assert kept_secret(place) == secret
    (path,) = (tmp_path / "folder").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert kept_secret(FilePlace(tmp_path / "other.db")) != secret
    assert kept_secret(MemoryPlace()) != kept_secret(MemoryPlace())
