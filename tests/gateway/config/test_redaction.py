import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.redaction import MASK, Redactor, is_credential_header
from tests.gateway.config.loading import BASE, faults, load

LETTERS = st.text(alphabet="abc", min_size=4, max_size=8)


def test_a_value_is_replaced_by_a_mask_without_prefix_or_suffix() -> None:
    assert Redactor(["SECRET-123"])("not found for key=SECRET-123 (SECRET-123)") == "not found for key=*** (***)"


def test_the_longest_value_goes_first() -> None:
    assert Redactor(["secret", "secret-long"])("secret-long secret") == "*** ***"


def test_overlapping_values_leave_nothing_of_either() -> None:
    assert Redactor(["abcdef", "cdefgh"])("-abcdefgh-") == "-***-"


def test_a_value_is_found_in_its_encoded_forms() -> None:
    secret = 'p+ss/w"rd é'
    redact = Redactor([secret])
    for text in (quote(secret, safe=""), json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)):
        assert MASK in redact(text)
        assert "ss" not in redact(text)


def test_values_that_are_too_short_would_blot_out_words_and_are_left() -> None:
    assert Redactor(["a", "", "on"])("an apple on a tree") == "an apple on a tree"


def test_no_values_change_nothing() -> None:
    assert Redactor([])("text") == "text"


def test_it_does_not_show_its_values() -> None:
    assert "SECRET" not in repr(Redactor(["SECRET-123"]))


@given(st.lists(LETTERS, min_size=1, max_size=5), st.text(alphabet="abcd", max_size=60))
def test_no_value_survives(values: list[str], text: str) -> None:
    redacted = Redactor(values)(text)
    assert not any(value in redacted for value in values)


@given(st.lists(LETTERS, max_size=5), st.text(alphabet="xyz ", max_size=60))
def test_text_without_a_value_is_unchanged(values: list[str], text: str) -> None:
    assert Redactor(values)(text) == text


@pytest.mark.parametrize("name", ["Authorization", "x-api-key", "Cookie", "X-Auth-Token", "proxy-authorization"])
def test_headers_that_carry_credentials_are_known(name: str) -> None:
    assert is_credential_header(name)
    assert not is_credential_header("x-team")


def test_every_secret_of_a_configuration_is_collected() -> None:
    config = load(
        """
        version: 1
        server: {host: "${HOST}", port: "${PORT}"}
        auth: {keys: [{id: a, secret: client-secret}]}
        providers:
          openai:
            api_key: "${KEY}"
            headers: {authorization: "Bearer bearer-secret", x-team: ordinary-team, x-part: "pre-${PART}"}
            proxy: "http://user:pa%20ss@proxy:3128"
          local: {model: tiny}
        """,
        {"HOST": "127.0.0.1", "PORT": "8080", "KEY": "sk-1", "PART": "part-secret"},
    )
    assert config.secrets == {
        "client-secret",
        "sk-1",
        "Bearer bearer-secret",
        "bearer-secret",
        "part-secret",
        "http://user:pa%20ss@proxy:3128",
        "pa%20ss",
        "pa ss",
        "127.0.0.1",
    }


@pytest.mark.parametrize("key", ["none", "EMPTY", "not-needed"])
def test_the_placeholder_of_a_server_without_keys_is_no_secret(key: str) -> None:
    assert load(BASE + f"  openai: {{api_key: {key}}}").secrets == frozenset()


def test_the_configuration_shows_no_secret() -> None:
    config = load(BASE + "  openai: {api_key: sk-secret, headers: {x-key: other}}")
    for shown in (repr(config), str(config), repr(config.run), repr(config.providers), config.run.model_dump_json()):
        assert "sk-secret" not in shown
        assert "other" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "  openai: {base_url: '${V}'}",
        "  v: {type: '${V}', base_url: http://x}",
        "  openai: {enabled: '${V}'}",
        "  openai: {api_key: 'a${V}é'}",
        "models: {a: '${V}/m'}",
        "models: {a: 'local/${V}'}",
        "models: {a: {targets: ['local/tiny'], strategy: '${V}'}}",
        "models: {a: {targets: ['${V}/m', '${V}/m']}}",
        "server: {host: '${V}'}",
        "server: {port: '${V}'}",
    ],
)
@pytest.mark.parametrize("secret", ["hunter", "hunter2-is-long"])
def test_no_error_shows_a_substituted_value(text: str, secret: str) -> None:
    assert secret not in "\n".join(faults(BASE + text, {"V": secret}))


def test_a_literal_secret_of_the_wrong_type_is_not_shown() -> None:
    lines = faults(BASE + "  openai: {api_key: 123456}\nauth: {keys: [{id: a, secret: 654321}]}")
    assert "123456" not in str(lines)
    assert "654321" not in str(lines)
