from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.document import MAX_TEXT_CHARS, MappingNode, ScalarNode, parse_document, parse_scalar
from gateway.config.resolve import resolve
from tests.gateway.config.loading import BASE, fault, faults, load


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8080", 8080),
        ("-1", -1),
        ("0x10", 16),
        ("0o17", 15),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("", None),
        ("off", "off"),
        ("no", "no"),
        ("yes", "yes"),
        ("12:30:45", "12:30:45"),
        ("2026-01-01", "2026-01-01"),
        ("010", 10),
        ("1_000", "1_000"),
        (".", "."),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    assert parse_scalar(text) == value
    assert type(parse_scalar(text)) is type(value)


@given(st.text())
def test_any_text_is_some_scalar(text: str) -> None:
    parse_scalar(text)


@given(st.text(max_size=200))
def test_any_text_ends_in_a_tree_or_in_one_fault_with_a_line(text: str) -> None:
    root, found = parse_document(text)
    assert root is not None or (len(found) == 1 and found[0].line >= 1)


def test_a_key_is_text_whatever_it_looks_like() -> None:
    root, _ = parse_document("on: 1\n4: 2\nnull: 3\n")
    assert isinstance(root, MappingNode)
    assert [key for key, _, _ in root.entries] == ["on", "4", "null"]


def test_a_node_knows_its_line() -> None:
    root, _ = parse_document("a: 1\nb:\n  c: 2\n")
    assert isinstance(root, MappingNode)
    inner = root.entries[1][2]
    assert isinstance(inner, MappingNode)
    assert inner.entries == (("c", 3, ScalarNode("2", plain=True, line=3)),)


@pytest.mark.parametrize("text", ["", "   \n", "# only a comment\n", "---\n", "\ufeff"])
def test_an_empty_file_is_one_clear_line(text: str) -> None:
    assert fault(text) == "run.yaml:1: the file is empty, expected at least 'version: 1'"


@pytest.mark.parametrize("text", ["- a\n", "just text\n", "42\n"])
def test_a_file_that_is_no_mapping_is_one_clear_line(text: str) -> None:
    assert fault(text) == "run.yaml:1: expected a mapping at the top level ('version: 1', 'providers: ...')"


def test_a_syntax_error_names_its_line() -> None:
    line = fault("version: 1\nserver: {port: 1\nmodels: {}\n")
    assert line.startswith("run.yaml:3: not valid YAML: ")
    assert "\n" not in line


def test_an_unquoted_substitution_in_a_flow_mapping_gets_a_hint() -> None:
    line = fault("version: 1\nproviders:\n  openai: {api_key: ${KEY}}\n")
    assert 'needs quotes: "${...}"' in line


def test_a_control_character_names_its_line() -> None:
    assert fault("version: 1\nserver: \x00\n") == "run.yaml:2: not valid YAML: the character '\\x00' is not allowed"


def test_a_duplicate_key_is_an_error_that_names_both_lines() -> None:
    lines = faults("version: 1\nserver: {port: 1}\nmodels: {}\nserver: {port: 2}\n")
    assert lines == ["run.yaml:4: server: duplicate key 'server', first given in line 2"]


def test_a_duplicate_model_name_is_an_error() -> None:
    line = fault(BASE + "models:\n  a: local/tiny\n  a: local/tiny\n")
    assert line == "run.yaml:6: models.a: duplicate key 'a', first given in line 5"


def test_an_alias_stands_for_its_anchor() -> None:
    config = load(BASE + "models:\n  a: &x {targets: [local/tiny]}\n  b: *x\n")
    assert config.models["a"] == config.models["b"]


def test_an_alias_without_an_anchor_is_an_error() -> None:
    assert fault("version: *x\n") == "run.yaml:1: version: the alias '*x' has no anchor before it"


def test_an_alias_of_what_holds_it_is_an_error() -> None:
    assert "has no anchor before it" in fault("version: 1\nserver: &x {cors: [*x]}\n")


def test_a_bomb_of_aliases_is_refused_before_it_goes_off() -> None:
    text = "version: 1\na: &a [x, x, x, x, x, x, x, x, x]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        text += f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    assert any("more than 200000 values once the aliases are expanded" in line for line in faults(text))


@pytest.mark.parametrize("depth", [65, 5000])
def test_deep_nesting_is_refused(depth: int) -> None:
    assert "nest" in fault("version: 1\nserver: " + "[" * depth + "]" * depth)


def test_ten_thousand_names_are_not_too_many() -> None:
    rows = "".join(f"  m{number}: {{targets: [local/tiny, up/x], limits: {{rpm: 1}}}}\n" for number in range(10_000))
    root, found = parse_document(f"models:\n{rows}")
    assert isinstance(root, MappingNode)
    assert found == []
    assert resolve(root, {}, Path()).malformed == []


def test_a_huge_file_is_refused() -> None:
    assert "the file is too large" in fault("#" * (MAX_TEXT_CHARS + 1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version: 1\n--- \nversion: 1\n", "run.yaml:2: a second document starts here, expected one"),
        (
            "version: !!python/name:os.system 1\n",
            "the YAML tag 'tag:yaml.org,2002:python/name:os.system' is not supported",
        ),
        ("version: 1\nserver: {<<: {port: 1}}\n", "run.yaml:2: server.<<: merge keys (<<) are not supported"),
        ("version: 1\n? [a]\n: 1\n", "run.yaml:2: a key must be plain text"),
    ],
)
def test_what_the_format_leaves_out_is_refused_by_name(text: str, expected: str) -> None:
    assert any(expected in line for line in faults(text))
