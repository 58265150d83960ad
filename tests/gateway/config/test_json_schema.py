import json

from gateway.config.json_schema import SCHEMA_FILE, generate_schema


def test_the_shipped_schema_is_what_the_models_say() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == generate_schema(), "run python -m gateway.config.json_schema"


def test_the_schema_refuses_unknown_keys_and_describes_the_known_ones() -> None:
    schema = json.loads(generate_schema())
    assert schema["additionalProperties"] is False
    server = schema["$defs"]["Server"]
    assert server["additionalProperties"] is False
    assert server["properties"]["port"]["description"]
    assert server["properties"]["port"]["default"] == 8080


def test_numbers_may_be_given_as_substitutions() -> None:
    port = json.loads(generate_schema())["$defs"]["Server"]["properties"]["port"]
    assert {"$ref": "#/$defs/Substitution"} in port["anyOf"]
    assert {"type": "integer", "minimum": 0, "maximum": 65535} in port["anyOf"]


def test_a_model_may_be_one_target_or_a_mapping() -> None:
    schema = json.loads(generate_schema())
    kinds = schema["properties"]["models"]["additionalProperties"]["anyOf"]
    assert {"$ref": "#/$defs/Alias"} in kinds
    assert any(kind.get("type") == "string" for kind in kinds)
