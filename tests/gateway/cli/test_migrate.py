import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.storage.place import NEWEST_SCHEMA
from tests.gateway.cli.conftest import WriteConfig

PROVIDERS = "version: 1\nproviders: {a: {type: openai-compatible, base_url: 'http://127.0.0.1:1/v1'}}\n"


def set_revision(path: Path, revision: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("update alembic_version set version_num = ?", (revision,))
        database.commit()


def test_a_database_is_brought_up_to_date_and_stays_so(
    write_config: WriteConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(PROVIDERS + f"storage: {{url: 'sqlite:///{tmp_path / 'gateway.db'}'}}\n")
    assert main(["migrate"]) == 0
    assert capsys.readouterr().out == f"the database is at {NEWEST_SCHEMA}, it was empty\n"
    assert main(["migrate"]) == 0
    assert capsys.readouterr().out == f"the database is at {NEWEST_SCHEMA}\n"


def test_without_a_place_in_the_file_it_is_the_one_in_the_users_data_folder(
    write_config: WriteConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_GATEWAY_DATA", str(tmp_path / "data"))
    write_config(PROVIDERS)
    assert main(["migrate"]) == 0
    assert (tmp_path / "data" / "gateway.db").exists()


@pytest.mark.parametrize(
    ("url", "words"),
    [("memory", "nothing to bring up to date"), ("postgresql://u:secret@127.0.0.1:1/d", "can't be used")],
)
def test_what_can_not_be_migrated_is_one_clear_line(
    write_config: WriteConfig, capsys: pytest.CaptureFixture[str], url: str, words: str
) -> None:
    write_config(PROVIDERS + f"storage: {{url: '{url}'}}\n")
    assert main(["migrate"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert "secret" not in line


def test_a_gateway_refuses_to_start_on_an_old_database_and_says_what_to_run(
    write_config: WriteConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gateway.db"
    config = PROVIDERS + f"server: {{port: 0}}\nstorage: {{url: 'sqlite:///{path}'}}\n"
    write_config(config)
    assert main(["migrate"]) == 0
    set_revision(path, "0000")
    assert main(["serve"]) == 1
    assert "run 'gateway migrate'" in capsys.readouterr().err


def test_a_url_that_is_none_is_a_fault_of_the_file(
    write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(PROVIDERS + "storage: {url: 'mysql://x'}\n")
    assert main(["check"]) == 1
    assert "storage.url: expected sqlite:///FILE" in capsys.readouterr().err
