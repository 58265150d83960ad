import re
from pathlib import Path

import pytest

from gateway.cli import main


@pytest.fixture
def config(tmp_path: Path) -> list[str]:
    path = tmp_path / "run.yaml"
    path.write_text(
        "version: 1\nproviders: {p: {type: openai-compatible, base_url: 'http://127.0.0.1:9/v1'}}\n"
        f"auth: {{hash_secret: pepper-of-the-test, keys: [{{id: ours, secret: secret-of-ours}}]}}\nstorage: {{url: 'sqlite:///{tmp_path}/gateway.db'}}\n"
    )
    return ["--config", str(path)]


def test_a_key_is_made_shown_once_listed_and_revoked(config: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", *config, "create", "team-b", "--models", "fast, p/*", "--rpm", "5", "--days", "1"]) == 0
    secret = capsys.readouterr().out.strip()
    assert re.fullmatch(r"gw-[A-Za-z0-9]{43}", secret)
    assert main(["keys", *config, "list"]) == 0
    listed = capsys.readouterr().out
    assert "team-b" in listed
    assert "active" in listed
    assert "fast,p/*" in listed
    assert secret not in listed
    assert main(["keys", *config, "revoke", "team-b"]) == 0
    capsys.readouterr()
    assert main(["keys", *config, "list"]) == 0
    assert "revoked" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["create", "team b"], "id: "),
        (["create", "b", "--rpm", "0"], "limits.rpm: "),
        (["create", "b", "--usd", "5"], "a budget needs to know what tokens cost"),
        (["create", "ours"], "there is a key 'ours' in run.yaml"),
        (["create", "b", "--team", "c"], "run.yaml has no team 'c'"),
        (["change", "nobody", "--team", "c"], "there is no key 'nobody'"),
        (["revoke", "nobody"], "there is no key 'nobody'"),
        (["rotate", "nobody"], "there is no key 'nobody'"),
        (["rotate", "nobody", "--grace", "-1"], "grace_s: "),
        (["change", "nobody", "--rpm", "5"], "there is no key 'nobody'"),
        (["change", "nobody", "--usd", "5"], "a budget needs to know what tokens cost"),
        (["change", "nobody"], "nothing to change"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_status_1(
    config: list[str], arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", *config, *arguments]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert why in said[0]


def test_the_file_may_be_named_behind_the_action(config: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "create", "team-b", *config]) == 0
    capsys.readouterr()
    assert main(["keys", "list", *config]) == 0
    assert "team-b" in capsys.readouterr().out
    assert main(["keys", "revoke", "team-b", *config]) == 0


def test_a_key_is_changed_and_told_with_its_limits(config: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", *config, "create", "team-b", "--rpm", "5", "--tpm", "100", "--days", "1"]) == 0
    assert main(["keys", *config, "change", "team-b", "--rpm", "50", "--tpm", "none", "--days", "none"]) == 0
    assert main(["keys", *config, "change", "team-b", "--models", "fast, p/*", "--admin", "--blocked"]) == 0
    assert main(["keys", *config, "list"]) == 0
    assert "team-b  blocked" in capsys.readouterr().out
    assert main(["keys", *config, "change", "team-b", "--no-blocked"]) == 0
    capsys.readouterr()
    assert main(["keys", *config, "list"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "team-b" in line]
    assert re.fullmatch(r"  team-b  active  \d{4}-\d\d-\d\d +fast,p/\*  rpm=50", line), line


def test_a_rotated_key_has_a_new_secret_and_its_old_name(config: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", *config, "create", "team-b", "--rpm", "5"]) == 0
    first = capsys.readouterr().out.strip()
    assert main(["keys", *config, "rotate", "team-b", "--grace", "60"]) == 0
    second = capsys.readouterr().out.strip()
    assert re.fullmatch(r"gw-[A-Za-z0-9]{43}", second)
    assert second != first
    assert main(["keys", *config, "list"]) == 0
    assert capsys.readouterr().out.count("team-b") == 1


def test_a_limit_that_is_no_number_is_wrong_use(config: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", *config, "change", "team-b", "--rpm", "many"]) == 2
    assert "expected a whole number or none, got 'many'" in capsys.readouterr().err


def test_an_id_is_taken_once(config: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", *config, "create", "team-b"]) == 0
    assert main(["keys", *config, "create", "team-b"]) == 1
    assert "there is a key 'team-b' already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "why"),
    [("storage: {url: memory}\nauth: {hash_secret: pepper}\n", "memory"), ("", "auth.hash_secret")],
)
def test_keys_need_a_place_that_lasts_and_a_secret_for_their_hashes(
    tmp_path: Path, more: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(f"version: 1\nproviders: {{p: {{type: openai, api_key: k}}}}\n{more}")
    assert main(["keys", "--config", str(path), "create", "b"]) == 1
    assert why in capsys.readouterr().err
