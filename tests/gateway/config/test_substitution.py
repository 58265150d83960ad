import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.substitution import BadSubstitution, MissingValue, substitute
from tests.gateway.config.loading import BASE, fault, faults, load

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True)
HERE = Path()


def value(text: str, **env: str) -> str:
    return substitute(text, env, HERE).text


def test_a_variable_is_put_in() -> None:
    assert value("${A}", A="x") == "x"
    assert value("http://${HOST}:${PORT}/v1", HOST="h", PORT="1") == "http://h:1/v1"


def test_a_default_applies_when_the_variable_is_unset_or_empty() -> None:
    assert value("${A:-d}") == "d"
    assert value("${A:-d}", A="") == "d"
    assert value("${A:-d}", A="x") == "x"
    assert value("${A:-}") == ""
    assert value("${A:-http://x:1/-:?}") == "http://x:1/-:?"


def test_a_message_is_shown_when_the_variable_is_unset_or_empty() -> None:
    assert value("${A:?get one}", A="x") == "x"
    for env in ({}, {"A": ""}):
        with pytest.raises(MissingValue, match="'A' is not set: get one"):
            substitute("${A:?get one}", env, HERE)


def test_an_empty_variable_exists() -> None:
    assert value("${A}", A="") == ""


def test_a_doubled_dollar_is_a_literal() -> None:
    assert value("$${A}") == "${A}"
    assert value("$${A} ${A}", A="x") == "${A} x"
    assert value("$A $$ $ {A}", A="x") == "$A $$ $ {A}"


def test_only_one_whole_substitution_is_lone() -> None:
    assert substitute("${A}", {"A": "1"}, HERE).lone
    assert substitute("${A:-1}", {}, HERE).lone
    for text in ("x${A}", "${A}x", "${A}${A}", "$${A}", "x"):
        assert not substitute(text, {"A": "1"}, HERE).lone


def test_values_from_outside_are_told_and_defaults_are_not() -> None:
    assert substitute("${A}-${B:-d}", {"A": "x"}, HERE).values == ("x",)


@pytest.mark.parametrize("text", ["${", "${A", "${}", "${1A}", "${A-B}", "${A:+x}", "${A:=x}", "${file:}", "${ A }"])
def test_a_substitution_without_meaning_is_an_error(text: str) -> None:
    with pytest.raises(BadSubstitution):
        substitute(text, {"A": "x"}, HERE)


@given(NAMES, st.text())
def test_what_is_put_in_is_not_looked_at_again(name: str, inner: str) -> None:
    assert substitute(f"<${{{name}}}>", {name: inner}, HERE).text == f"<{inner}>"


@given(st.text())
def test_text_without_an_opening_is_unchanged(text: str) -> None:
    text = text.replace("${", "")
    assert substitute(text, {}, HERE).text == text


@given(st.text())
def test_doubling_the_dollar_of_every_opening_gives_the_text_back(text: str) -> None:
    text = text.replace("$$", "$")
    assert substitute(text.replace("${", "$${"), {}, HERE).text == text


@given(st.text(), st.dictionaries(NAMES, st.text()))
def test_any_text_is_substituted_or_refused_with_one_of_two_errors(text: str, env: dict[str, str]) -> None:
    with contextlib.suppress(BadSubstitution, MissingValue):
        substitute(text, env, Path("/nowhere"))


def test_a_file_is_read_without_its_last_line_break(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xef\xbb\xbfsesame\r\n")  # as editors on Windows write it
    assert substitute(f"${{file:{tmp_path}/key}}", {}, HERE).text == "sesame"
    assert substitute("${file:key}", {}, tmp_path).text == "sesame"


@pytest.mark.parametrize("name", ["none", ".", "bin", "big", "a\0b"])
def test_a_file_that_cannot_be_used_is_an_error_naming_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "bin").write_bytes(b"\xff\xfe")
    (tmp_path / "big").write_bytes(b"x" * 70_000)
    with pytest.raises((BadSubstitution, MissingValue), match="the file '"):
        substitute(f"${{file:{name}}}", {}, tmp_path)


@pytest.mark.parametrize(
    ("line", "env", "attribute", "expected"),
    [
        ("server: {port: '${V}'}", {"V": "9000"}, "port", 9000),
        ("server: {port: '${V:-9001}'}", {}, "port", 9001),
        ("server: {drain_s: '${V}'}", {"V": "0.5"}, "drain_s", 0.5),
        ("server: {completions_as_chat: '${V}'}", {"V": "true"}, "completions_as_chat", True),
        ("server: {unsupported_params: '${V}'}", {"V": "drop"}, "unsupported_params", "drop"),
        ("server: {host: '${V}'}", {"V": "127.0.0.2"}, "host", "127.0.0.2"),
    ],
)
def test_a_lone_variable_takes_the_type_of_its_field(
    line: str, env: dict[str, str], attribute: str, expected: object
) -> None:
    assert getattr(load(BASE + line, env).server, attribute) == expected


def test_a_key_of_digits_stays_text() -> None:
    config = load(
        BASE + "  openai: {api_key: '${KEY}'}\nserver: {port: '${PORT}'}", {"KEY": "0123456789", "PORT": "80"}
    )
    provider = config.providers["openai"]
    assert provider.type == "openai"
    assert config.secrets == {"0123456789"}
    assert config.server.port == 80


def test_a_variable_inside_other_text_does_not_become_a_number() -> None:
    assert "server.port: expected a whole number" in fault(BASE + "server: {port: '80${V}'}", {"V": "80"})


def test_a_lone_variable_of_the_wrong_type_is_an_error_that_hides_it() -> None:
    line = fault(BASE + "server: {port: '${V}'}", {"V": "hunter22"})
    assert line == "run.yaml:4: server.port: expected a whole number, got a substituted value"


def test_a_missing_variable_is_named_with_its_line() -> None:
    lines = faults(BASE + "  openai: {api_key: '${NO_KEY}'}\nserver: {port: '${NO_PORT}'}")
    assert lines == [
        "run.yaml:4: providers.openai.api_key: the environment variable 'NO_KEY' is not set",
        "run.yaml:5: server.port: the environment variable 'NO_PORT' is not set",
    ]


def test_a_malformed_substitution_is_an_error_even_where_the_provider_may_be_off() -> None:
    assert "without its '}'" in fault(BASE + "  openai: {api_key: '${KEY', enabled: auto}")


def test_keys_and_numbers_are_not_substituted() -> None:
    assert "unknown key '${A}'" in fault(BASE + "'${A}': 1", {"A": "server"})
